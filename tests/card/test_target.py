"""Programs through the ttnn target on a mocked device: calls, deaths, scripts."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from card_models import mnist

import temper
from temper.compiler.pipeline import compile_model
from temper.frontdoor.inputs import graph_inputs
from temper.options import resolve
from temper.program.tensor_file import parse
from temper.targets.ttnn.client import WorkerDied
from temper.targets.ttnn.emit import emit


def _compiled(**options: object) -> tuple[temper.frontdoor.compiled.CompiledModel, torch.Tensor]:
    torch.manual_seed(0)
    model, (x,), _ = mnist()
    return temper.compile(model.to(torch.bfloat16).eval(), target="ttnn", **options), x


def test_a_model_runs_through_ttnn_and_its_times_stay_modelled_on_a_mock(ttnn_here: Path) -> None:
    model, x = _compiled(level=2)
    for _ in range(3):
        y = model(x)
    assert y.shape == (4, 10)
    assert y.dtype == torch.bfloat16
    (graph,) = model.loaded
    assert (graph.target.name, graph.target.timing) == ("ttnn", "modelled")


def test_other_weights_are_uploaded_before_the_next_call(ttnn_here: Path) -> None:
    model, x = _compiled(level=1)
    model(x)
    with torch.no_grad():
        model.c1.weight.mul_(2)
    model(x)
    assert model.loaded[0].stats.weight_updates == 1


def test_a_killed_worker_is_told_with_the_op_and_the_next_call_works(ttnn_here: Path) -> None:
    model, x = _compiled(level=2)
    model(x)
    for delay in (0.0, 0.001, 0.003):
        worker = model.loaded[0]._running._on
        killer = threading.Timer(delay, os.kill, (worker.pid, signal.SIGKILL))
        killer.start()
        died = None
        deadline = time.monotonic() + 60
        while died is None and time.monotonic() < deadline:
            try:
                model(x)
            except WorkerDied as error:
                died = error
            if not killer.is_alive() and model.loaded[0]._running._on is not worker:
                break  # it died between two calls: a new one was started unasked
        if died is not None:
            assert "the ttnn worker ended with code -9" in str(died)
            assert " ran" in str(died) or "during 'run'" in str(died)
        assert model(x).shape == (4, 10)


def test_the_emitted_script_runs_where_temper_is_not(ttnn_here: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, args, kwargs = mnist()
    options = resolve({"optimization_level": 2})
    compiled = compile_model(model.to(torch.bfloat16).eval(), args, kwargs, options)
    (built,) = compiled.graphs
    given = graph_inputs(built, args, kwargs)
    written = emit(built.program, built.weights, options, tmp_path, given)
    assert [path.name for path in written] == [
        "model.py", "weights.safetensors", "inputs.safetensors", "outputs.safetensors",
    ]  # fmt: skip
    cluster = {"TT_METAL_MOCK_CLUSTER_DESC_PATH": str(ttnn_here / "clusters" / "n150.yaml"),
               "TT_METAL_CACHE": f"{ttnn_here}/cache/", "TT_LOGGER_LEVEL": "fatal"}  # fmt: skip
    python = str(ttnn_here / "venv" / "bin" / "python")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    ran = subprocess.run(
        [python, "-I", str(tmp_path / "model.py"), "--time", "2"],
        env={**clean, **cluster}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "ms a forward (measured on this host, 2 forwards" in ran.stdout
    results = parse((tmp_path / "results.safetensors").read_bytes())
    expected = parse((tmp_path / "outputs.safetensors").read_bytes())
    assert {n: a.shape for n, a in results.items()} == {n: a.shape for n, a in expected.items()}
    eager = model(*args).detach().float().numpy()
    np.testing.assert_allclose(next(iter(expected.values())), eager, atol=0.05)
    checked = subprocess.run(
        [python, "-I", str(tmp_path / "model.py"), "--check"],
        env={**clean, **cluster}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert checked.returncode == 1  # a mocked device gives zeros, and --check says so
    assert "PCC 0.0" in checked.stdout


def test_a_program_with_ops_of_the_host_runs_them_between_the_device_s(ttnn_here: Path) -> None:
    class Unusual(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.rfft(x * 2).abs() + 1

    model = temper.compile(Unusual().eval(), target="ttnn")
    y = model(torch.randn(4, 64))
    assert any(op.kind == "Host" for op in model.loaded[0].program.ops)
    assert y.shape == (4, 33)


@pytest.mark.parametrize("phase", ["first", "warm"])
def test_a_wrong_number_of_inputs_is_refused(ttnn_here: Path, phase: str) -> None:
    model, x = _compiled(level=0)
    model(x)
    with pytest.raises(temper.TemperError, match="takes 1 inputs"):
        model.loaded[0]._running.run([x, x], phase)
