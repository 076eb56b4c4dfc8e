"""Measured rows beside the model: modelled times that are called measured are as modelled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import temper
from temper.report.advise_table import advise_table
from temper.report.judge import family_of, judge
from temper.report.writers import write_ops_csv
from temper.run.card_csv import read_ops_csv

MODEL = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256), nn.LayerNorm(256))


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in a card's form whose times the cost model made."""
    compiled = temper.compile(MODEL.eval().to(torch.bfloat16), chip="n150", level=0)
    with torch.no_grad(), temper.profile() as session:
        compiled(torch.randn(512, 256, dtype=torch.bfloat16))
    path = tmp_path_factory.mktemp("card") / "ops_perf_results.csv"
    write_ops_csv(session.run, path, newer=True)
    path.write_text(path.read_text().replace('""device_times"": ""modelled""', ""))
    return path


def test_what_the_model_made_is_judged_as_modelled(card: Path) -> None:
    table, judged = judge(read_ops_csv(card))
    assert table.basis == "measured"
    found = {item.code: item for item in judged}
    for code in ("MatmulDeviceOperation", "LayerNormDeviceOperation", "UnaryDeviceOperation"):
        item = found[code]
        # Measured rows are told in part, so the model may choose another block or core count.
        assert item.modelled_ns == pytest.approx(item.measured_ns, rel=0.15), code
        assert item.verdict == "as modelled"
    assert "" not in {table.text("bound")[row] for row in range(table.rows)}


def test_shares_of_the_peaks_are_arithmetic(card: Path) -> None:
    _, judged = judge(read_ops_csv(card))
    item = next(j for j in judged if "Matmul" in j.code)
    flops = 2 * 512 * 256 * 512
    # n150: 1 GHz, 4096 FLOP a cycle and core at LoFi, 288 GB/s; level 0 computes at HiFi4.
    assert item.flops_share == pytest.approx(
        flops / item.measured_ns / (4096 * 1.0 * item.cores / 4), rel=1e-6
    )
    size = 2 * (512 * 256 + 256 * 512 + 512 * 512 + 32 * 512)  # the bias is a row of tiles
    assert item.dram_share == pytest.approx(size / item.measured_ns / 288, rel=1e-6)


def test_time_beyond_the_model_comes_first(card: Path, tmp_path: Path) -> None:
    lines = card.read_text().splitlines()
    at = lines[0].split(",").index("DEVICE KERNEL DURATION [ns]")
    slow = tmp_path / "slow.csv"
    row = next(i for i, line in enumerate(lines) if line.startswith("LayerNorm"))
    cells = lines[row].split(",")
    cells[at] = "900000"
    lines[row] = ",".join(cells)
    slow.write_text("\n".join(lines) + "\n")
    _, judged = judge(read_ops_csv(slow))
    assert judged[0].code == "LayerNormDeviceOperation"
    assert judged[0].verdict == "slower than modelled"
    assert judged[0].lost_ns == pytest.approx(900_000 - judged[0].modelled_ns)


def test_a_norm_on_one_core_is_told_to_use_more(tmp_path: Path) -> None:
    """A LayerNorm of 2048 x 1024 on 1 core of 64, as a script without shards leaves it."""
    dims = ",".join(f"{p}_{d}_PAD[LOGICAL]" for p in ("INPUT_0", "OUTPUT_0") for d in "WZYX")
    words = ",".join(f"{p}_{w}" for p in ("INPUT_0", "OUTPUT_0")
                     for w in ("LAYOUT", "DATATYPE", "MEMORY"))  # fmt: skip
    path = tmp_path / "ops.csv"
    path.write_text(
        "OP CODE,OP TYPE,DEVICE ID,DEVICE ARCH,ATTRIBUTES,MATH FIDELITY,CORE COUNT,"
        f"AVAILABLE WORKER CORE COUNT,DEVICE KERNEL DURATION [ns],{dims},{words}\n"
        "LayerNormDeviceOperation,tt_dnn_device,0,wormhole_b0,{},HiFi4,1,64,3000000,"
        "1[1],1[1],2048[2048],1024[1024],1[1],1[1],2048[2048],1024[1024],"
        "TILE,BFLOAT16,DEV_1_DRAM_INTERLEAVED,TILE,BFLOAT16,DEV_1_DRAM_INTERLEAVED\n"
    )
    advice = advise_table(*judge(read_ops_csv(path)))
    best = advice[0]
    assert best.title == "more cores"
    assert "1 of 64 cores" in best.why
    assert "ttnn." in best.paste  # no compiler wrote this file
    assert best.gain_ns > 0.5 * 3_000_000


def test_an_op_that_no_program_has_is_judged_too(tmp_path: Path) -> None:
    """Heads of attention, split by an op that compiled programs spell otherwise."""
    dims = ",".join(f"{p}_{d}_PAD[LOGICAL]" for p in ("INPUT_0", "OUTPUT_0") for d in "WZYX")
    words = ",".join(f"{p}_{w}" for p in ("INPUT_0", "OUTPUT_0")
                     for w in ("LAYOUT", "DATATYPE", "MEMORY"))  # fmt: skip
    path = tmp_path / "ops.csv"
    path.write_text(
        "OP CODE,OP TYPE,DEVICE ID,DEVICE ARCH,ATTRIBUTES,MATH FIDELITY,CORE COUNT,"
        f"AVAILABLE WORKER CORE COUNT,DEVICE KERNEL DURATION [ns],{dims},{words}\n"
        "NlpCreateHeadsDeviceOperation,tt_dnn_device,0,wormhole_b0,{},,4,64,9000,"
        "1[1],1[1],128[128],2304[2304],1[1],12[12],128[128],64[64],"
        "TILE,BFLOAT16,DEV_1_DRAM_INTERLEAVED,TILE,BFLOAT16,DEV_1_DRAM_INTERLEAVED\n"
    )
    _, judged = judge(read_ops_csv(path))
    assert [item.code for item in judged] == ["NlpCreateHeadsDeviceOperation"]
    assert judged[0].modelled_ns > 0


def test_a_matmul_with_a_poor_config_is_told_a_better_one(tmp_path: Path) -> None:
    """2048 x 2048 x 2048 in blocks one tile deep, subblocks of one tile, on the whole grid."""
    tensors = ("INPUT_0", "INPUT_1", "OUTPUT_0")
    dims = ",".join(f"{p}_{d}_PAD[LOGICAL]" for p in tensors for d in "WZYX")
    words = ",".join(f"{p}_{w}" for p in tensors for w in ("LAYOUT", "DATATYPE", "MEMORY"))
    config = (
        "{'program_config': 'MatmulMultiCoreReuseMultiCastProgramConfig("
        "compute_with_storage_grid_size=(x=8;y=8);in0_block_w=1;out_subblock_h=1;out_subblock_w=1;"
        "out_block_h=8;out_block_w=8;per_core_M=8;per_core_N=8)'}"
    )
    size, place = "1[1],1[1],2048[2048],2048[2048]", "TILE,FLOAT32,DEV_1_DRAM_INTERLEAVED"
    path = tmp_path / "ops.csv"
    path.write_text(
        "OP CODE,OP TYPE,DEVICE ID,DEVICE ARCH,ATTRIBUTES,MATH FIDELITY,CORE COUNT,"
        f"AVAILABLE WORKER CORE COUNT,DEVICE KERNEL DURATION [ns],{dims},{words}\n"
        f"MatmulDeviceOperation,tt_dnn_device,0,wormhole_b0,{config},HiFi2,64,64,2000000,"
        f"{size},{size},{size},{place},{place},{place}\n"
    )
    _, judged = judge(read_ops_csv(path))
    advice = {item.title: item for item in advise_table(*judge(read_ops_csv(path)))}
    better = advice["a better matmul program config"]
    found = re.search(r"in0_block_w=(\d+).*per_core_M=(\d+), per_core_N=(\d+)", better.paste)
    assert found, better.paste
    depth, rows, columns = map(int, found.groups())
    assert better.paste.startswith(
        "program_config=ttnn.MatmulMultiCoreReuseMultiCastProgramConfig("
    )
    assert depth > 1
    assert 64 % depth == 0
    assert rows * columns * 64 >= 64 * 64  # the grid holds every tile of the result
    assert 0.01 < better.share < 0.9
    assert "modelled" in better.basis
    assert "bfloat16 instead of float32" in advice
    assert judged[0].cores == 64


@pytest.mark.parametrize(
    ("code", "family"),
    [
        ("tt::operations::primary::Matmul", "matmul"),
        ("NLPConcatHeadsDeviceOperation", "heads"),
        ("ConcatDeviceOperation", "concat"),
        ("UntilizeWithUnpaddingDeviceOperation", "untilize"),
        ("UntilizeWithHalo", "halo"),
        ("PlusOneDeviceOperation", "other"),
    ],
)
def test_codes_of_every_version_have_a_family(code: str, family: str) -> None:
    assert family_of(code) == family
