"""Images as the host folds them on their way to the device, for targets that are not this host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from temper.program import Op, Program

Array = np.ndarray[Any, Any]


def fold_image(op: Op, x: Array, shape: Sequence[int]) -> Array:
    """What a FoldImage op makes of an (N, C, H, W) array, in the given shape."""
    n, c, _, _ = x.shape
    (down, across), channels = op.attr("step"), op.attr("channels")
    top, bottom, left, right = op.attr("padding")
    padded = np.pad(x, ((0, 0), (0, channels - c), (top, bottom), (left, right)))
    rows, columns = padded.shape[2] // down, padded.shape[3] // across
    blocks = padded.reshape(n, channels, rows, down, columns, across)
    folded: Array = blocks.transpose(0, 2, 4, 3, 5, 1).reshape(tuple(shape))
    return folded


def folded_inputs(program: Program) -> dict[str, tuple[str, Op]]:
    """Inputs that are folded: the value that reaches the device for each, and its fold."""
    found: dict[str, tuple[str, Op]] = {}
    reshaped = {op.inputs[0]: op.outputs[0] for op in program.ops if op.kind == "Reshape"}
    for op in program.ops:
        if op.kind == "FoldImage":
            made = op.outputs[0]
            kept = program.spec(made).memory.buffer == "host"
            found[op.inputs[0]] = (reshaped[made] if kept else made, op)
    return found


def fold_inputs(program: Program, arrays: Sequence[Array]) -> list[Array]:
    """The arrays of a call as they reach the device."""
    folds = folded_inputs(program)

    def sent(name: str, array: Array) -> Array:
        if name not in folds:
            return array
        value, op = folds[name]
        return np.ascontiguousarray(fold_image(op, array, program.spec(value).shape))

    return [sent(name, array) for name, array in zip(program.inputs, arrays, strict=True)]
