"""Emitted scripts of every family, run in ttnn's own Python with nothing of Temper importable."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import torch
from card_models import FAMILIES

from temper.compiler.pipeline import compile_model
from temper.frontdoor.inputs import graph_inputs
from temper.options import resolve
from temper.program.tensor_file import parse
from temper.targets.ttnn.emit import emit

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
    for folder in folders:
        results = parse((folder / "results.safetensors").read_bytes())
        expected = parse((folder / "outputs.safetensors").read_bytes())
        shapes = {n: a.shape for n, a in results.items()}
        assert shapes == {n: a.shape for n, a in expected.items()}
