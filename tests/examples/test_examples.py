"""Every example runs as its first lines say, and shows what it claims."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# example -> arguments of `temper run`, arguments of the script, what its output must show
RUNS: dict[str, tuple[list[str], list[str], str]] = {
    "pytorch/mnist_performant.py": ([], ["--batch", "2"], r"throughput: [\d,]+ samples/s"),
    "pytorch/optimization_levels.py": ([], [], r"(?s)level.*\n +0 .*\n +1 .*\n +2 "),
    "pytorch/warmup.py": ([], [], r"the first call took [\d,]+ times as long"),
    "pytorch/data_formats.py": ([], [], r"bfloat4_b +[\d.]+ µs modelled, PCC 0\.9"),
    "pytorch/runtime_trace.py": ([], [], r"enable_trace=True +call"),
    "pytorch/batch_size.py": ([], [], r"most throughput: batch \d+"),
    "pytorch/transformer_mixed_precision.py": ([], [], r"feed-forward bfloat4_b.*PCC 0\.9"),
    "tuning_guide/fused_pipeline.py": (["--chip", "e75"], [], r"fusing gains \d+%"),
    "tuning_guide/table_placement.py": (["--chip", "e75"], [], r"same rows from both: True"),
    "etl/criteo.py": ([], ["--rows", "5000"], r"day 1: 5,000 rows"),
}


def run(name: str, options: list[str], arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "temper", "run", *options, str(EXAMPLES / name), *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", RUNS)
def test_an_example_shows_what_it_claims(name: str) -> None:
    options, arguments, shown = RUNS[name]
    assert re.search(shown, run(name, options, arguments))


def test_the_profiling_example_leaves_a_run_folder(tmp_path: Path) -> None:
    output = run("pytorch/profiling.py", [], [str(tmp_path / "run")])
    assert "modelled" in output
    assert (tmp_path / "run" / "run.json").is_file()


def test_every_example_is_run_by_a_test() -> None:
    folders = ("pytorch", "tuning_guide", "etl")
    found = {str(p.relative_to(EXAMPLES)) for f in folders for p in (EXAMPLES / f).glob("*.py")}
    assert found == {*RUNS, "pytorch/profiling.py"}


def test_the_first_iterations_of_mnist_are_slow_then_fast_on_the_devices_clock() -> None:
    output = run("pytorch/mnist_performant.py", ["--clock", "device"], ["--batch", "1"])
    first, second, third = (float(t) for t in re.findall(r"warm-up \d: +([\d.]+) ms", output))
    steady = float(re.findall(r"steady: +([\d.]+) ms", output)[0])
    assert first > 10 * second
    assert second >= third
    assert steady == pytest.approx(third, rel=0.05)
