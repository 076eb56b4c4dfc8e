"""The ops CSV: columns of the seed, one row an op, numbers that follow from the cost."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import samples

from temper import chips
from temper.program import Op, TensorSpec
from temper.report import writers
from temper.report.writers import write_ops_csv, write_run
from temper.run.describe import attributes
from temper.run.folder import read_run
from temper.run.kernel_sources import cell, kernel_sources
from temper.run.logs import run_from_logs
from temper.run.opening import open_profile
from temper.run.opinfo import OpInfo
from temper.run.run_table import table_of_run

SEED = Path(__file__).parents[3] / "shared" / "seeds" / "profiling.md"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_columns_are_the_seeds_in_its_order(tmp_path: Path) -> None:
    if not SEED.is_file():
        pytest.skip(f"the guide is not at {SEED}")
    line = next(x for x in SEED.read_text().splitlines() if x.startswith("|OP CODE"))
    expected = [cell.strip() for cell in line.strip("|").split("|")]
    write_ops_csv(samples.run(), tmp_path / "ops.csv")
    with (tmp_path / "ops.csv").open(newline="") as file:
        assert next(csv.reader(file)) == expected


def test_rows_follow_execution_and_carry_the_users_line(tmp_path: Path) -> None:
    write_ops_csv(samples.run(calls=1), tmp_path / "ops.csv")
    rows = rows_of(tmp_path / "ops.csv")
    ops = [row for row in rows if row["OP TYPE"] != "signpost"]
    assert [row["GLOBAL CALL COUNT"] for row in ops] == [str(1024 * i) for i in range(1, 9)]
    assert ops[0]["LOC"] == f'loc(fused["{samples.MODEL_FILE}":10:0, "layers.0/Matmul"])'
    assert ops[1]["LOC"] == f'loc(fused["{samples.MODEL_FILE}":20:0, "activations.0/Unary"])'
    assert [row["OP CODE"] for row in rows].index("steady") == 4


@pytest.mark.parametrize("newer", [False, True])
def test_a_view_runs_nothing_and_has_no_row(tmp_path: Path, newer: bool) -> None:
    write_ops_csv(samples.run(), tmp_path / "plain.csv", newer=newer)
    write_ops_csv(samples.run(view=True), tmp_path / "view.csv", newer=newer)
    assert (tmp_path / "view.csv").read_bytes() == (tmp_path / "plain.csv").read_bytes()


def test_a_view_is_in_no_report_and_moves_no_other_op(tmp_path: Path) -> None:
    plain, view = samples.run(), samples.run(view=True)
    assert view.op_count == plain.op_count
    assert table_of_run(view).rows == table_of_run(plain).rows
    for run, name in ((plain, "a"), (view, "b")):
        write_run(run, tmp_path / name)
    for file in ("profile_log_device.csv", "ops_perf_results_v2.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    again = read_run(tmp_path / "b")
    assert again.op_count == plain.op_count
    # The program itself is whole: what-if costing and memory need its views.
    assert [op.kind for op in next(again.records).program.ops].count("Reshape") == 1


def test_times_are_the_costs_and_the_clock_of_the_chip(tmp_path: Path) -> None:
    write_ops_csv(samples.run(calls=1, chip="p150"), tmp_path / "ops.csv")
    first, second = rows_of(tmp_path / "ops.csv")[:2]
    assert first["DEVICE KERNEL DURATION [ns]"] == "50000"
    assert first["DEVICE FW DURATION [ns]"] == "51921"
    assert first["OP TO OP LATENCY [ns]"] == "0"
    # 20 µs a dispatch and 10 µs an op: the second op waits for nothing but its own gap.
    assert second["OP TO OP LATENCY [ns]"] == "700"
    cycles = int(first["DEVICE FW END CYCLE"]) - int(first["DEVICE FW START CYCLE"])
    assert cycles == round(51_921 * 1.35)


def test_performance_model_columns_follow_tt_metals_formula(tmp_path: Path) -> None:
    write_ops_csv(samples.run(calls=1), tmp_path / "ops.csv")
    matmul, gelu = rows_of(tmp_path / "ops.csv")[:2]
    # 2 x 512 x 1024 x 1024 FLOP, 4 phases, 64 cores x 4096 FLOP a cycle, 1 GHz
    assert int(matmul["PM COMPUTE [ns]"]) == 2 * 512 * 1024 * 1024 * 4 // (64 * 4096)
    # The weight is the largest tensor in DRAM: 2 MiB at 258 GiB/s.
    assert int(matmul["PM BANDWIDTH [ns]"]) == -(-(2 * 2**20) * 10**9 // (258 * 2**30))
    assert matmul["PM IDEAL [ns]"] == matmul["PM COMPUTE [ns]"]
    assert (gelu["PM IDEAL [ns]"], gelu["PM REQ I BW"]) == ("1", "[]")


def test_replays_carry_their_trace_and_session(tmp_path: Path) -> None:
    write_ops_csv(samples.run(calls=2), tmp_path / "ops.csv")
    sessions = [
        row["METAL TRACE REPLAY SESSION ID"]
        for row in rows_of(tmp_path / "ops.csv")
        if row["METAL TRACE ID"]
    ]
    assert sessions == ["1"] * 4 + ["2"] * 4


def test_host_ops_are_fallbacks_without_device_numbers(tmp_path: Path) -> None:
    write_ops_csv(samples.run(calls=1, host_op=True), tmp_path / "ops.csv")
    row = next(r for r in rows_of(tmp_path / "ops.csv") if r["OP TYPE"] == "python_fallback")
    assert row["OP CODE"] == "aten.erfcx (torch)"
    assert row["DEVICE FW START CYCLE"] == row["CORE COUNT"] == ""
    assert row["OUTPUT_0_MEMORY"] == "HOST"


def test_newer_names_say_padded_and_logical_and_the_architecture(tmp_path: Path) -> None:
    write_ops_csv(samples.run(calls=1, chip="p150"), tmp_path / "ops.csv", newer=True)
    row = rows_of(tmp_path / "ops.csv")[0]
    assert row["INPUT_0_Y_PAD[LOGICAL]"] == "512[512]"
    assert (row["DEVICE ARCH"], row["AVAILABLE WORKER CORE COUNT"]) == ("blackhole", "110")


def test_grayskull_names_no_architecture_because_tools_refuse_it(tmp_path: Path) -> None:
    write_ops_csv(samples.run(calls=1, chip="e150"), tmp_path / "ops.csv", newer=True)
    assert rows_of(tmp_path / "ops.csv")[0]["DEVICE ARCH"] == ""


def test_every_row_says_that_its_times_are_modelled(tmp_path: Path) -> None:
    write_ops_csv(samples.run(calls=1), tmp_path / "ops.csv")
    ops = [r for r in rows_of(tmp_path / "ops.csv") if r["OP TYPE"] != "signpost"]
    assert all("modelled" in row["PROGRAM_METADATA"] for row in ops)


def test_constant_evaluation_is_marked(tmp_path: Path) -> None:
    from temper.record.log import ProcessLog
    from temper.record.recorder import Recorder

    log = ProcessLog()
    recorder = Recorder(log)
    program = samples.mlp(layers=1)
    handle = recorder.begin_program(program, samples.cost(program))
    recorder.record_call(handle, 0, 10, const_eval=True)
    recorder.flush()
    write_ops_csv(run_from_logs([log]), tmp_path / "ops.csv")
    assert {row["CONST_EVAL_OP"] for row in rows_of(tmp_path / "ops.csv")} == {"true"}


@pytest.mark.parametrize("name", ["a%d,b", 'quo"te', "line\nbreak", "\ue000", "nul\0", "é中"])
def test_any_name_gives_one_whole_row(tmp_path: Path, name: str) -> None:
    from dataclasses import replace

    from temper.program import Source
    from temper.record.log import ProcessLog
    from temper.record.recorder import Recorder

    program = samples.mlp(layers=1)
    ops = tuple(replace(op, source=Source(name, f"/x/{name}.py", 3)) for op in program.ops)
    log = ProcessLog()
    recorder = Recorder(log)
    handle = recorder.begin_program(program.replace(ops=ops), samples.cost(program))
    recorder.record_call(handle, 0, 10)
    recorder.mark(name)
    recorder.flush()
    write_ops_csv(run_from_logs([log]), tmp_path / "ops.csv")
    text = (tmp_path / "ops.csv").read_text()
    assert len(text.splitlines()) == 4
    assert {len(row) for row in csv.reader(text.splitlines())} == {
        len(text.splitlines()[0].split(","))
    }


def test_attention_says_its_blocks_as_tt_metal_does() -> None:

    config = {"name": "SDPA", "grid": [8, 8], "q_chunk_size": 128, "k_chunk_size": 256}
    q = TensorSpec((1, 8, 512, 64))
    text = attributes(OpInfo(Op("Sdpa", ("q",) * 3, ("y",), {"config": config}), (q,) * 3, (q,),
                             chips.get("n150")))  # fmt: skip
    assert "SDPAProgramConfig(compute_with_storage_grid_size=(x=8;y=8);" in text
    assert "q_chunk_size=128;k_chunk_size=256)" in text
    assert "'config'" not in text


def test_a_csv_that_stands_alone_names_the_chip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "_ROWS_FOR_BOTH", 10)
    write_run(samples.run(chip="p150"), tmp_path / "run")
    assert not (tmp_path / "run" / "ops_perf_results_v2.csv").exists()
    rows = rows_of(tmp_path / "run" / "ops_perf_results.csv")
    device = [row for row in rows if row["OP TYPE"] == "tt_dnn_device"]
    assert list(rows[0])[-1] == "DEVICE ARCH"
    assert {row["DEVICE ARCH"] for row in device} == {"blackhole"}
    assert open_profile(tmp_path / "run" / "ops_perf_results.csv").table.arch == "blackhole"


def test_kernel_sources_are_those_of_the_seeds_row() -> None:
    """The seed's example: two float32 tensors of one shape are added."""
    if not SEED.is_file():
        pytest.skip("the seed is not here")
    spec = TensorSpec((32, 32), "float32")
    add = Op("BinaryNg", ("a", "b"), ("c",), {"function": "add"})
    compute, moving = kernel_sources(OpInfo(add, (spec, spec), (spec,), chips.get("n150")))
    text = SEED.read_text()
    assert cell(compute) in text
    assert cell(moving) in text
    wide = OpInfo(add, (spec, TensorSpec((1, 32), "float32")), (spec,), chips.get("n150"))
    assert kernel_sources(wide) == ([], [])


def test_attributes_of_an_addition_are_those_of_the_seeds_row() -> None:
    if not SEED.is_file():
        pytest.skip("the seed is not here")
    spec = TensorSpec((256, 256), "float32")
    add = Op("BinaryNg", ("a", "b"), ("c",), {"function": "add"})
    assert attributes(OpInfo(add, (spec, spec), (spec,), chips.get("n150"))) in SEED.read_text()


@pytest.mark.parametrize(
    ("second", "told"),
    [((4, 8), "NONE"), ((1, 8), "ROW_B"), ((4, 1), "COL_B"), ((1, 1), "SCALAR_B"), ((8,), "ROW_B")],
)
def test_the_stretched_operand_is_named_as_tt_metal_does(
    second: tuple[int, ...], told: str
) -> None:
    add = Op("BinaryNg", ("a", "b"), ("c",), {"function": "add"})
    whole, other = TensorSpec((4, 8)), TensorSpec(second)
    for inputs, name in (((whole, other), told), ((other, whole), told.replace("_B", "_A"))):
        text = attributes(OpInfo(add, inputs, (whole,), chips.get("n150")))
        assert f"'subtile_broadcast_type': 'SubtileBroadcastType::{name}'" in text
