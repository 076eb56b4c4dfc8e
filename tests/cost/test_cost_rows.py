"""Reading and judging files of measured rows, good and bad."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from temper.cli import temper
from temper.cost.evaluate import evaluate
from temper.cost.rows import read
from temper.errors import BadFileError

ROWS = Path(__file__).resolve().parents[3] / "shared" / "silicon" / "ops_train.csv"
GOOD = {
    "source": "bench", "arch": "wormhole_b0", "board": "n150", "op": "matmul", "kernel_ns": "60000",
    "raw_op": "MatmulDeviceOperation", "fidelity": "HiFi4", "cores": "64", "avail_cores": "64",
    "in0_pad": "1x1x1024x1024", "in0_dtype": "BFLOAT16", "in0_mem": "DRAM_INTERLEAVED",
    "in0_layout": "TILE", "in1_pad": "1x1x1024x1024", "in1_dtype": "BFLOAT16",
    "in1_mem": "DRAM_INTERLEAVED", "in1_layout": "TILE", "out0_pad": "1x1x1024x1024",
    "out0_dtype": "BFLOAT16", "out0_mem": "DRAM_INTERLEAVED", "out0_layout": "TILE",
}  # fmt: skip


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, names)
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_bad_rows_are_named_with_their_line_and_reason(tmp_path: Path) -> None:
    file = write(
        tmp_path / "rows.csv",
        [
            GOOD,
            {**GOOD, "kernel_ns": "-5"},
            {**GOOD, "kernel_ns": "0.06"},
            {**GOOD, "kernel_ns": "soon"},
            {**GOOD, "arch": "z80"},
        ],
    )
    result = evaluate(file)
    assert (result.overall.rows, result.overall.predicted) == (5, 1)
    reasons = {r.number: r.reason for r in result.unpredicted}
    assert sorted(reasons) == [3, 4, 5, 6]
    assert "not positive" in reasons[3]
    assert "nanoseconds" in reasons[4]
    assert "not a number" in reasons[5]
    assert "z80" in reasons[6]


def test_unknown_ops_boards_formats_and_missing_cells_are_still_predicted(tmp_path: Path) -> None:
    bare = {k: GOOD[k] for k in ("arch", "kernel_ns", "in0_pad", "in0_dtype", "in0_mem")}
    rows = [
        {**GOOD, "op": "warp_drive", "raw_op": "WarpDriveOperation"},
        {**GOOD, "board": "n9000"},
        {**GOOD, "in0_dtype": "FP8_E4M3", "in1_dtype": "MYSTERY"},
        {**bare, "op": "matmul", "out0_pad": ""},
        {**bare, "op": "pool", "out0_pad": "1x1x32x32"},
        {**GOOD, "in0_mem": "L1_BLOCK_SHARDED", "out0_mem": "L1_ND_SHARDED", "cores": ""},
        {**GOOD, "misc": "{broken", "mm_cfg": "Odd", "per_core_M": "nan", "per_core_N": "x"},
    ]
    result = evaluate(write(tmp_path / "rows.csv", rows))
    assert result.overall.predicted == len(rows)


def test_rows_in_a_profilers_own_words_are_read_as_the_plain_ones(tmp_path: Path) -> None:
    told = {
        **GOOD,
        "arch": "WORMHOLE_B0",
        "op": "MATMUL",
        "raw_op": "tt::tt_metal::Matmul",
        "in0_pad": "1[1]x1[1]x1024[1000]x1024[1024]",
        "in0_dtype": "DataType::BFLOAT16",
        "in1_dtype": "bf16",
        "in0_mem": "DEV_0_DRAM_INTERLEAVED",
        "in1_layout": "Layout::TILE",
    }
    (plain,), _ = read(write(tmp_path / "plain.csv", [GOOD]))
    (found,), _ = read(write(tmp_path / "told.csv", [told]))
    assert (found.inputs, found.outputs, found.family) == (plain.inputs, plain.outputs, "matmul")
    assert found.op.attrs["code"] == "Matmul"
    (near,), _ = read(write(tmp_path / "near.csv", [{**told, "in0_mem": "DEV_0_L1_INTERLEAVED"}]))
    assert near.inputs[0].memory.buffer == "sram"
    (rows,), _ = read(write(tmp_path / "rows.csv", [{**told, "in0_layout": "Layout::ROW_MAJOR"}]))
    assert rows.inputs[0].layout == "row_major"


BROKEN = [
    {"out0_mem": "L1_BLOCK_SHARDED", "out_shard_shape": "32x0"},
    {"cores": "1e9"}, {"cores": "-3", "avail_cores": "-1"}, {"cores": "inf"},
    {"per_core_M": "1e30", "in0_block_w": "-1"}, {"in0_pad": "1x1x0x32"},
    {"op": "conv2d", "win_hw": "0x0", "groups": "-1", "conv_batch": "-1", "act_block_h": "-4"},
    {"op": "concat", "misc": json.dumps({"dim": None})},
    {"op": "concat", "misc": json.dumps({"dim": "last"})},
    {"op": "sdpa_decode", "ctx": "1e30"},
]  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN, ids=" ".join)
def test_broken_optional_cells_leave_a_sane_prediction(tmp_path: Path, broken) -> None:
    result = evaluate(write(tmp_path / "rows.csv", [{**GOOD, **broken}]))
    assert result.overall.predicted == 1
    # The measured 60 us are met within a factor of a hundred: nothing took the cell at its word.
    assert result.overall.bias is not None
    assert -99 < result.overall.bias < 10_000


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.csv", [{"op": "matmul", "time": "5"}])
    with pytest.raises(BadFileError, match="kernel_ns"):
        read(file)
    with pytest.raises(BadFileError, match="cannot read"):
        read(tmp_path / "absent.csv")


def test_json_has_the_promised_keys(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.csv", [GOOD] * 3)
    done = CliRunner().invoke(temper, ["calibrate", "--evaluate", str(file), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.output)
    keys = {"rows", "predicted", "median_ape", "p90_ape", "spearman", "in_band"}
    assert keys <= set(result["overall"])
    assert keys <= set(result["families"]["matmul/wormhole_b0"])


def test_a_failed_fit_overwrites_nothing(tmp_path: Path) -> None:
    target = tmp_path / "constants.json"
    target.write_text("old")
    file = write(tmp_path / "rows.csv", [{**GOOD, "kernel_ns": "-1"}])
    done = CliRunner().invoke(temper, ["calibrate", str(file), "-o", str(target)])
    assert done.exit_code != 0
    assert target.read_text() == "old"


def test_a_fit_can_be_written_elsewhere_and_read_back(tmp_path: Path) -> None:
    target = tmp_path / "constants.json"
    rows = [{**GOOD, "source": f"s{i % 3}", "kernel_ns": str(50000 + 1000 * i)} for i in range(12)]
    file = write(tmp_path / "rows.csv", rows)
    done = CliRunner().invoke(temper, ["calibrate", str(file), "-o", str(target)])
    assert done.exit_code == 0, done.output
    made = json.loads(target.read_text())
    assert made["rows"] == 12
    assert made["sources"] == ["s0", "s1", "s2"]
    assert made["held_out"]["median_ape"] < 50


@pytest.mark.skipif(not ROWS.exists(), reason=f"no measured rows at {ROWS.name}")
def test_the_constants_meet_the_bars_on_sources_left_out() -> None:
    from temper.cost.constants import constants

    meta = constants().meta
    assert meta["held_out"]["median_ape"] <= 10
    assert meta["held_out"]["p90_ape"] <= 45
    assert meta["balanced"]["median_ape"] <= 13
    assert meta["balanced"]["p90_ape"] <= 60
    assert 0.77 <= meta["in_band"]["sources"] <= meta["in_band"]["rows"] <= 0.83
    matmul = meta["evidence"]["matmul"]
    rows = {arch: part["rows"] for arch, part in matmul.items()}
    mean = sum(matmul[a]["median_ape"] * n for a, n in rows.items()) / sum(rows.values())
    assert mean <= 11
    result = evaluate(ROWS)
    assert result.overall.predicted == result.overall.rows
    assert result.overall.spearman is not None
    assert result.overall.spearman >= 0.95
