"""Emitted scripts of every family, run in ttnn's own Python with nothing of Temper importable."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from card_models import FAMILIES

from temper.compiler.pipeline import compile_model
from temper.frontdoor.inputs import graph_inputs
from temper.options import resolve
from temper.program.tensor_file import parse
from temper.targets.fold import fold_inputs
from temper.targets.ttnn.emit import emit
from temper.targets.ttnn.script import script
from temper.targets.ttnn.target import plan_of

# One Python for all scripts: importing ttnn and opening the device take longest.
_RUNNER = """
import importlib.util, runpy, sys
assert importlib.util.find_spec("temper") is None
for folder in sys.argv[1:]:
    sys.argv = ["model.py"]
    try:
        runpy.run_path(f"{folder}/model.py", run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    print("ran", folder, flush=True)
"""


def test_the_script_of_every_family_runs_where_temper_is_not(
    ttnn_here: Path, tmp_path: Path
) -> None:
    folders = []
    for name, family in FAMILIES.items():
        torch.manual_seed(0)
        model, args, kwargs = family()
        options = resolve({"optimization_level": 2})
        compiled = compile_model(model.to(torch.bfloat16).eval(), args, kwargs, options)
        (built,) = compiled.graphs
        folder = tmp_path / name
        emit(built.program, built.weights, options, folder, graph_inputs(built, args, kwargs))
        folders.append(folder)
    cluster = {"TT_METAL_MOCK_CLUSTER_DESC_PATH": str(ttnn_here / "clusters" / "n150.yaml"),
               "TT_METAL_CACHE": f"{ttnn_here}/cache/", "TT_LOGGER_LEVEL": "fatal"}  # fmt: skip
    python = str(ttnn_here / "venv" / "bin" / "python")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    ran = subprocess.run(
        [python, "-I", "-c", _RUNNER, *map(str, folders)],
        env={**clean, **cluster}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.count("ran ") == len(FAMILIES)
    given = parse((tmp_path / "resnet" / "inputs.safetensors").read_bytes())
    assert [a.shape for a in given.values()] == [(1, 3, 96, 96)]  # as a user has it, not folded
    for folder in folders:
        results = parse((folder / "results.safetensors").read_bytes())
        expected = parse((folder / "outputs.safetensors").read_bytes())
        shapes = {n: a.shape for n, a in results.items()}
        assert shapes == {n: a.shape for n, a in expected.items()}


def test_a_script_folds_an_image_as_temper_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, args, kwargs = FAMILIES["resnet"]()
    options = resolve({"optimization_level": 2})
    (built,) = compile_model(model.to(torch.bfloat16).eval(), args, kwargs, options).graphs
    plan = plan_of(built.program, options)
    assert plan.folds
    text = script(plan)
    start = text.index("def fold(")
    names: dict[str, Any] = {"np": np}
    exec(text[start : text.index("def load(")], names)
    arrays = [t.float().numpy() for t in graph_inputs(built, args, kwargs)]
    (expected,) = fold_inputs(built.program, arrays)
    (one,) = plan.folds
    first, end = one.op.attr("images") or (0, arrays[0].shape[0])
    how = [one.op.attr(name) for name in ("step", "padding", "channels")]
    made = names["fold"](arrays[0], first, end, *how)
    assert np.array_equal(made.reshape(expected.shape), expected)
