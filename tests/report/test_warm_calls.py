"""Figures are about warm calls; what is paid once stands by itself; memory has one figure."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import samples
import torch
from click.testing import CliRunner
from torch import nn

import temper
from temper.cli.memory import command as memory_command
from temper.cli.report import command as report_command
from temper.program import Op, Program, TensorSpec
from temper.program.memory_plan import plan
from temper.report.summary import summarise
from temper.run.calls import choose_calls
from temper.run.opening import open_profile

MODEL = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )
    return model.eval().to(torch.bfloat16), (torch.randn(1, 3, 32, 32, dtype=torch.bfloat16),)
"""


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def profiled(model_file: Path, folder: Path, **options: object) -> nn.Module:
    space: dict[str, object] = {}
    exec(model_file.read_text(), space)
    model, inputs = space["make"]()  # type: ignore[operator]
    compiled = temper.compile(model, **{"optimization_level": 1, **options})
    with torch.no_grad(), temper.profile(folder):
        for _ in range(3):
            compiled(*inputs)
    return compiled


def report(folder: Path, *words: str) -> dict[str, object]:
    done = CliRunner().invoke(report_command, [str(folder), "--json", "--no-advice", *words])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)  # type: ignore[no-any-return]


def test_const_eval_on_the_host_is_no_device_time_anywhere(model_file: Path, tmp_path: Path):
    profiled(model_file, tmp_path / "run")
    for calls in ("warm", "first", "all"):
        opened = open_profile(tmp_path / "run", calls)
        assert not opened.table.text("const_eval").equals("true").any()
        split = summarise(opened).split
        assert opened.run is not None
        one = [sum(c.kernel_ns for c in r.costs if c.bound != "host") for r in opened.run.called]
        assert split.device == pytest.approx({"warm": 2, "first": 1, "all": 3}[calls] * one[0])
    rows = list(csv.DictReader((tmp_path / "run" / "ops_perf_results.csv").open()))
    assert {row["CONST_EVAL_OP"] for row in rows} == {"false"}
    once = {work.name: work for work in summarise(open_profile(tmp_path / "run")).once}
    assert (once["const-eval"].place, once["const-eval"].basis) == ("host", "measured")
    assert once["const-eval"].time_ns > 0


def test_const_eval_on_the_device_is_shown_beside_the_warm_call(model_file: Path, tmp_path: Path):
    profiled(model_file, tmp_path / "run", enable_const_eval_on_cpu=False)
    warm, everything = (summarise(open_profile(tmp_path / "run", c)) for c in ("warm", "all"))
    (once,) = (work for work in warm.once if work.place == "device")
    assert (once.name, once.basis) == ("const-eval", "modelled")
    # Three equal calls in all, two of them warm; the rest of the device's time is const-eval.
    assert everything.split.device == pytest.approx(1.5 * warm.split.device + once.time_ns)
    assert once.time_ns > 0


@pytest.mark.parametrize("traced", [False, True])
def test_memory_has_one_figure(model_file: Path, tmp_path: Path, traced: bool):
    compiled = profiled(model_file, tmp_path / "run", enable_trace=traced)
    words = [str(model_file) + ":make", "--level", "1", "--json", "-O", f"enable_trace={traced}"]
    told = json.loads(CliRunner().invoke(memory_command, words).output)[0]
    summary = report(tmp_path / "run")["summary"]
    pools = {m["pool"]: m["size_bytes"] for m in summary["memory"]}  # type: ignore[index]
    stats = temper.stats(compiled)["memory"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert pools["dram"] == told["dram"]["high_water_bytes"] == stats["dram_high_water_bytes"]
    sram = told["sram"]["high_water_bytes_per_core"]
    assert pools["sram"] == sram == stats["sram_high_water_bytes_per_core"]
    assert str(told["dram"]["high_water_bytes"]) in page
    assert told["dram"]["trace_region_bytes"] > 0 or not traced


def test_a_run_with_one_call_reports_that_call(tmp_path: Path):
    run = samples.run(calls=1)
    # One plain first call and one replay: the replay is the warm one.
    warm, count = choose_calls(run, "warm")
    assert count == 1
    assert [int(e["flags"]) for p in warm.processes for e in p.calls] == [2]
    first, count = choose_calls(run, "first")
    assert (count, [int(e["flags"]) for p in first.processes for e in p.calls]) == (1, [1])


def test_a_view_takes_no_bytes_of_its_own_and_keeps_what_it_shows():
    shape, shown = TensorSpec((1, 1, 64, 1024)), TensorSpec((1, 64, 1024))
    values = {"x": shape, "y": shape, "v": shown, "z": shown}
    ops = (
        Op("Unary", ("x",), ("y",), {"functions": [["relu"]]}),
        Op("Reshape", ("y",), ("v",)),
        Op("Unary", ("v",), ("z",), {"functions": [["relu"]]}),
    )
    made = plan(Program("views", "n150", values, ops, ("x",), ("z",)))
    tensor = 12 * 2048 * 6  # 64 tiles in 12 banks: six of the fullest
    assert made.used("dram") == [2 * tensor, 2 * tensor, 3 * tensor]
    assert [(s.first, s.last) for s in made.timeline.stays if s.name == "y"] == [(0, 2)]
