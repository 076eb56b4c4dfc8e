"""A program as a folder: the script, its weights, inputs that can be replaced, our outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from temper.errors import CompileError
from temper.files import replacing, write_text
from temper.options import Options
from temper.program import Program
from temper.program.tensor_file import dump
from temper.targets.ttnn.constants import array_of, evaluate
from temper.targets.ttnn.script import script
from temper.targets.ttnn.target import plan_of
from temper.targets.virtual.executor import Executor


def emit(
    program: Program,
    weights: Mapping[str, torch.Tensor],
    options: Options,
    folder: Path,
    inputs: Sequence[torch.Tensor] | None = None,
    *,
    file: str = "model.py",
) -> list[Path]:
    """Write the script and what stands beside it; the files that were written.

    With ``inputs`` their outputs are computed on the virtual chip for the script's ``--check``.
    """
    plan = plan_of(program, options, traceable=True)
    if plan.host_ops:
        kinds = sorted({str(program.ops[i].attr("target")) for i in plan.host_ops})
        raise CompileError(
            f"{program.name} has ops that run on the host in torch, which a script of ttnn cannot",
            ops=", ".join(kinds[:5]),
            try_="target='ttnn', which runs them here between the device's",
        )
    stem = Path(file).stem
    prefix = "" if stem == "model" else f"{stem}_"
    text = script(plan, file=file)
    for name in ("weights", "inputs", "outputs", "results"):
        text = text.replace(f'"{name}.safetensors"', f'"{prefix}{name}.safetensors"')
    written = [folder / file, folder / f"{prefix}weights.safetensors"]
    write_text(written[0], text)
    empty = {name: np.zeros(program.spec(name).shape, np.float32) for name in program.state}
    _write(written[1], evaluate(program, weights, plan) | empty)
    if inputs is not None:
        arrays = {n: array_of(t) for n, t in zip(program.inputs, inputs, strict=True)}
        results = Executor(program, weights).run(inputs)
        outputs = {name: array_of(t) for name, t in zip(program.outputs, results, strict=True)}
        written += [folder / f"{prefix}{kind}.safetensors" for kind in ("inputs", "outputs")]
        _write(written[2], arrays)
        _write(written[3], outputs)
    return written


def _write(path: Path, arrays: Mapping[str, Any]) -> None:
    with replacing(path) as file:
        file.write(dump(arrays))
