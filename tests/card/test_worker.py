"""A worker that dies or falls silent at any moment, ttnn in one process, and a trace on a mock."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from card_models import mnist

import temper
from temper.compiler.pipeline import compile_model
from temper.options import resolve
from temper.program.tensor_file import dump
from temper.targets.ttnn import client, target
from temper.targets.ttnn.client import WorkerDied
from temper.targets.ttnn.constants import evaluate
from temper.targets.ttnn.environment import find

ROOT = Path(__file__).resolve().parents[2]


def _model() -> tuple[temper.frontdoor.compiled.CompiledModel, torch.Tensor]:
    torch.manual_seed(0)
    model, (x,), _ = mnist()
    return temper.compile(model.to(torch.bfloat16).eval(), target="ttnn", level=2), x


def _death(model: Any, x: torch.Tensor, running: Any) -> WorkerDied | None:
    """Call until this worker is gone: what was told of it, nothing if it went between two calls."""
    while True:
        try:
            model(x)
        except WorkerDied as error:
            return error
        if model.loaded[0]._running._on is not running:
            return None


def test_a_worker_killed_at_any_moment_is_told_and_the_next_call_works(ttnn_here: Path) -> None:
    model, x = _model()
    model(x)  # compiled once: later calls only load and run
    loaded = model.loaded[0]._running
    told = []
    for delay in (0.0, 0.02, 0.05, 0.1):  # while it starts, imports ttnn, loads, uploads, runs
        target.server(loaded._target.environment).close()
        running = target.server(loaded._target.environment)
        threading.Timer(delay, os.kill, (running.pid, signal.SIGKILL)).start()
        told.append(_death(model, x, running))
        assert model(x).shape == (4, 10)
    whats = [error.what for error in told if error is not None]
    assert whats
    for what in whats:
        assert re.fullmatch(r"the ttnn worker ended with code -9 (while .* ran|during '\w+')", what)


def test_a_worker_that_says_nothing_is_ended(
    ttnn_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = _model()
    model(x)
    worker = model.loaded[0]._running._on
    worker._channel.settimeout(1.0)
    monkeypatch.setattr(client, "_PATIENCE_S", 1.0)
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(WorkerDied, match="said nothing for 1 s"):
        model(x)
    assert not worker.alive
    monkeypatch.undo()
    os.environ["TEMPER_TTNN"] = str(ttnn_here)
    assert model(x).shape == (4, 10)


def test_a_trace_that_kills_the_device_is_told(ttnn_here: Path) -> None:
    """A mock cannot record traces: what is shown is that its death is no hang and no traceback."""
    model, x = _model()
    model(x)
    loaded = model.loaded[0]._running
    asked = {"do": "run", "program": loaded.number, "phase": "capture"}
    with pytest.raises(WorkerDied, match="the ttnn worker ended with code"):
        loaded._on.ask(asked, [np.zeros(u.shape, np.float32) for u in loaded.plan.inputs])
    assert model(x).shape == (4, 10)


_IN_PROCESS = """
import json, sys
import numpy as np
from temper.targets.ttnn.client import InProcess, checked

asked = json.load(open(sys.argv[1]))
server = InProcess()
checked(server.ask(asked)[0])
given = [np.zeros(u["shape"], np.float32) for u in asked["plan"]["inputs"]]
for phase in ("first", "warm"):
    reply, made = server.ask({"do": "run", "program": 0, "phase": phase}, given)
    print(json.dumps([sorted(checked(reply)["times"]), [list(a.shape) for a in made]]))
print(json.dumps(server.ask({"do": "run", "program": 7, "phase": "warm"}, given)[0]))
"""


def test_where_ttnn_is_in_this_python_the_same_code_runs_in_process(
    ttnn_here: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model, args, kwargs = mnist()
    options = resolve({"optimization_level": 2})
    (built,) = compile_model(model.to(torch.bfloat16).eval(), args, kwargs, options).graphs
    plan = target.plan_of(built.program, options)
    constants = tmp_path / "constants.safetensors"
    constants.write_bytes(dump(evaluate(built.program, built.weights, plan)))
    asked = {"do": "load", "program": 0, "plan": plan.to_json(), "constants": str(constants),
             "group": -1}  # fmt: skip
    (tmp_path / "load.json").write_text(json.dumps(asked))
    environment = find("n150")
    ran = subprocess.run(
        [str(environment.python), "-c", _IN_PROCESS, str(tmp_path / "load.json")],
        env={**os.environ, **environment.variables, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    first, warm, unknown = map(json.loads, ran.stdout.splitlines())
    assert first == warm == [["device_ns", "in_ns", "out_ns"], [[4, 10]]]
    assert unknown["gone"]
