"""Every example runs as its first lines say, and shows what it claims."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from temper import options
from temper.compat import install
from temper.compat.pybuda_run import reset

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# example -> chip, arguments of the script, what its output must show
RUNS: dict[str, tuple[str, list[str], str]] = {
    "pytorch/mnist_performant.py": ("", ["--batch", "2"], r"throughput: [\d,]+ samples/s"),
    "pytorch/optimization_levels.py": ("", [], r"(?s)level.*\n +0 .*\n +1 .*\n +2 "),
    "pytorch/warmup.py": ("", [], r"the first call took [\d,]+ times as long"),
    "pytorch/data_formats.py": ("", [], r"bfloat4_b +[\d.]+ µs modelled, PCC 0\.9"),
    "pytorch/runtime_trace.py": ("", [], r"enable_trace=True +call"),
    "pytorch/batch_size.py": ("", [], r"most throughput: batch \d+"),
    "pytorch/transformer_mixed_precision.py": ("", [], r"feed-forward bfloat4_b.*PCC 0\.9"),
    "tuning_guide/fused_pipeline.py": ("e75", [], r"fusing gains \d+%"),
    "tuning_guide/table_placement.py": ("e75", [], r"same rows from both: True"),
    "etl/criteo.py": ("", ["--rows", "5000"], r"day 1: 5,000 rows"),
}


@pytest.fixture
def stand_ins() -> Iterator[None]:
    """What `temper run` sets up, without the seconds that a process takes to start."""
    import torch

    torch._dynamo.reset()
    install.install()
    before = dict(os.environ)
    yield
    install.uninstall()
    options.clear_custom_compile_options()
    reset()
    os.environ.clear()
    os.environ.update(before)


def run(name: str, chip: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name), *arguments])
    if chip:
        monkeypatch.setenv("TEMPER_CHIP", chip)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.usefixtures("stand_ins")
def test_an_example_shows_what_it_claims(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chip, arguments, shown = RUNS[name]
    run(name, chip, arguments, monkeypatch)
    assert re.search(shown, capsys.readouterr().out)


@pytest.mark.usefixtures("stand_ins")
def test_the_profiling_example_leaves_a_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("pytorch/profiling.py", "", [str(tmp_path / "run")], monkeypatch)
    assert "modelled" in capsys.readouterr().out
    assert (tmp_path / "run" / "run.json").is_file()


def test_every_example_is_run_by_a_test() -> None:
    folders = ("pytorch", "tuning_guide", "etl")
    found = {str(p.relative_to(EXAMPLES)) for f in folders for p in (EXAMPLES / f).glob("*.py")}
    assert found == {*RUNS, "pytorch/profiling.py"}


def test_the_first_iterations_of_mnist_are_slow_then_fast_on_the_devices_clock() -> None:
    command = ["temper", "run", "--clock", "device", str(EXAMPLES / "pytorch/mnist_performant.py")]
    done = subprocess.run([sys.executable, "-m", *command, "--batch", "1"], capture_output=True,
                          text=True, timeout=300, check=True)  # fmt: skip
    output = done.stdout
    first, second, third = (float(t) for t in re.findall(r"warm-up \d: +([\d.]+) ms", output))
    steady = float(re.findall(r"steady: +([\d.]+) ms", output)[0])
    assert first > 10 * second
    # The rest is modelled time and the guards of torch.compile, which are measured.
    assert first > 10 * third
    assert steady < 10 * third
