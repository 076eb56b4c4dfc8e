"""Measuring: warm-up, both clocks, baselines, lint."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from tiny import make, mutating, noisy

import temper
from temper import clock
from temper.cli.bench import command
from temper.errors import BadFileError, TemperError, UsageError
from temper.report.compare import compare
from temper.run.opening import open_profile
from temper.tuning import baseline
from temper.tuning.bench_json import as_json
from temper.tuning.expected import parse
from temper.tuning.lint_script import lint_script

HERE = Path(__file__).parent
QUICK: dict[str, Any] = {"trials": 3, "iterations": 4, "seconds": 2.0}


@pytest.fixture(scope="module")
def measured() -> Any:
    model, inputs = make(4)
    return temper.bench(model, inputs, options={"optimization_level": 1}, **QUICK)


def test_a_measurement_has_both_clocks_and_counts_input_and_output_bytes(measured: Any) -> None:
    assert measured.input_bytes == 4 * 256 * 4
    assert measured.output_bytes == 4 * 64 * 4
    assert len(measured.warmup_ns) >= 4
    assert measured.wall.calls == 12
    assert measured.modelled.device_low_ns < measured.modelled.device_ns
    assert measured.first_call_ns > measured.wall.median


def test_a_callable_that_sleeps_is_measured_at_its_sleep() -> None:
    found = temper.bench(lambda x: time.sleep(0.005) or x, torch.zeros(2, 3), **QUICK)
    assert found.modelled is None
    # No call can be shorter than its sleep; how much longer is this host's affair.
    assert found.wall.median >= found.wall.least >= 5e6


def test_json_has_the_keys_of_tt_xlas_benchmarks(measured: Any) -> None:
    made = json.loads(json.dumps(as_json(measured, "tiny")))
    keys = {
        "project", "model", "model_type", "run_type", "config", "num_layers", "batch_size",
        "precision", "dataset_name", "profile_name", "input_sequence_length",
        "output_sequence_length", "image_dimension", "perf_analysis", "training",
        "measurements", "device_info", "device_ip",
    }  # fmt: skip
    assert keys <= set(made)
    named = {m["measurement_name"]: m for m in made["measurements"]}
    assert {"total_samples", "total_time", "samples_per_sec"} <= set(named)
    assert named["total_samples"]["value"] == 48
    assert {"iteration", "step_name", "step_warm_up_num_iterations", "target", "device_power",
            "device_temperature"} <= set(named["total_time"])  # fmt: skip


def test_a_slower_run_fails_the_gate_and_an_equal_one_does_not(
    measured: Any, tmp_path: Path
) -> None:
    path = tmp_path / "base.json"
    baseline.save(measured, path)
    base = baseline.read(path)
    base["findings"], base["warmup"]["ns"] = [], [9.0, 3.0, 3.0, 3.0]
    assert not any(v.failed for v in baseline.against(measured, base, 0.05))
    base["modelled"]["call_ns"] *= 0.8
    # So far apart that no noise of a busy machine can hide it.
    base["measured"]["trials_ns"] = [[v / 100 for v in t] for t in base["measured"]["trials_ns"]]
    assert [v.failed for v in baseline.against(measured, base, 0.05)] == [True, True]


def test_a_baseline_that_was_not_warmed_is_refused(measured: Any, tmp_path: Path) -> None:
    baseline.save(measured, tmp_path / "base.json")
    base = baseline.read(tmp_path / "base.json")
    base["warmup"]["ns"] = base["warmup"]["ns"][:1]
    with pytest.raises(TemperError, match="not warmed"):
        baseline.against(measured, base, 0.05)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"temper": {"format": "other"}}', "\x00"])
def test_a_file_that_is_no_baseline_is_told_so(text: str, tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    path.write_text(text)
    with pytest.raises(BadFileError, match="no baseline"):
        baseline.read(path)


def test_the_guides_ranges_are_known_and_a_wrong_range_is_an_error() -> None:
    found = parse("stateless", "e75")
    assert (found.low, found.typical, found.high) == (6, 8, 10)
    assert found.judge(5) == "below"
    assert parse("5:7", "n150").unit == "GB/s"
    for text in ("7:5", "fast", "1:x"):
        with pytest.raises(UsageError):
            parse(text, "n150")
    with pytest.raises(UsageError, match="no expected range"):
        parse("stateful", "n150")


def test_lint_sees_random_numbers_printing_allocation_and_changed_inputs() -> None:
    model, inputs = noisy()
    kinds = {f.kind for f in temper.bench(model, inputs, **QUICK).findings}
    assert {"random", "printing", "allocation"} <= kinds
    model, inputs = mutating()
    assert "mutation" in {f.kind for f in temper.bench(model.forward, inputs, **QUICK).findings}


SCRIPT = """
import time, torch, pandas
def step(x): return x
start = time.perf_counter()
for _ in range(10):
    x = torch.randn(3)
    y = torch.zeros(3)
    step(x)
    print(x)
    d = pandas.read_csv("a.csv")
elapsed = time.perf_counter() - start
"""
GOOD = """
import time
for _ in range(10):
    step(x)
start = time.perf_counter()
for _ in range(100):
    step(x)
elapsed = time.perf_counter() - start
"""


def test_lint_of_a_script_points_at_lines_and_passes_a_good_one(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    found = {(f.kind, f.line, f.refuse) for f in lint_script(path)}
    assert found == {
        ("unwarmed", 4, True), ("random", 6, False), ("allocation", 7, False),
        ("printing", 9, False), ("loading", 10, False),
    }  # fmt: skip
    path.write_text(GOOD)
    assert lint_script(path) == []
    path.write_text("def (")
    with pytest.raises(BadFileError):
        lint_script(path)


def test_the_command_compares_two_settings_side_by_side() -> None:
    ran = CliRunner().invoke(
        command,
        [f"{HERE / 'tiny.py'}:make", "--batch", "2", "--trials", "3", "--iterations", "5",
         "--seconds", "3", "--versus", "level=0", "--json"],
        catch_exceptions=False,
    )  # fmt: skip
    made = json.loads(ran.stdout)
    assert made["temper"]["settings"]["optimization_level"] == 2
    versus = made["temper"]["versus"]
    # Level 2 is chosen for the device's time; without a trace the host's dispatch hides it here.
    assert versus["result"]["modelled"]["device_ns"] > made["temper"]["modelled"]["device_ns"]
    # A busy host may disturb the calls; then no speed-up is claimed.
    assert versus["refused"] == (ran.exit_code == 1) == (versus["measured"] is None)


class _Looped(torch.nn.Module):
    """Three calls of one graph, with Python in between."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = self.step(x)
            torch._dynamo.graph_break()
        return x


class _WithHostOp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + torch.linalg.svdvals(x[:8, :8]).sum()


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("kind", [_Looped, _WithHostOp])
def test_bench_and_diff_show_the_same_time_of_one_call(
    kind: Any, traced: bool, tmp_path: Path
) -> None:
    model, inputs = kind().eval(), torch.randn(32, 64)
    found = temper.bench(model, inputs, options={"enable_trace": traced}, **QUICK)
    compiled = temper.compile(model, enable_trace=traced)
    with torch.no_grad():
        temper.warmup(compiled, inputs, iterations=4)
        before = clock.elapsed_ns()
        with temper.profile(tmp_path / "run"):
            compiled(inputs)
        passed = clock.elapsed_ns() - before
    assert found.modelled is not None
    assert found.modelled.call_ns == pytest.approx(passed, rel=1e-8)  # the device clock's advance
    profile = open_profile(tmp_path / "run")
    shown = compare(profile, profile)
    # A profile knows graphs and not the model: of one that a call runs thrice it shows one run.
    assert shown.before_total_ns * shown.before.calls == pytest.approx(passed, rel=1e-6)
