"""Images as the host folds them on their way to the device, for targets that are not this host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from temper.kernels import fold_ptr
from temper.program import Op, Program

Array = np.ndarray[Any, Any]


def fold_to(op: Op, x: int, out: int, size: int, shape: Sequence[int]) -> None:
    """Do a FoldImage op from one contiguous buffer to another, given by their addresses.

    ``shape`` is that of all images, (N, C, H, W); elements have 2 or 4 bytes.
    """
    images, channels, height, width = shape
    first, end = op.attr("images") or (0, images)
    (down, across), (top, bottom, left, right) = op.attr("step"), op.attr("padding")
    fold_ptr(
        x + first * channels * height * width * size, out, size, end - first, channels, height,
        width, down, across, top, left, (top + height + bottom) // down,
        (left + width + right) // across, op.attr("channels"),
    )  # fmt: skip


def fold_image(op: Op, x: Array, shape: Sequence[int]) -> Array:
    """What a FoldImage op makes of an (N, C, H, W) array, in the given shape."""
    given = np.ascontiguousarray(x)
    out = np.empty(tuple(shape), x.dtype)
    fold_to(op, given.ctypes.data, out.ctypes.data, x.itemsize, x.shape)
    return out


def folded_inputs(program: Program) -> dict[str, list[tuple[str, Op]]]:
    """Inputs that are folded: the values that reach the device for each, and their folds."""
    found: dict[str, list[tuple[str, Op]]] = {}
    reshaped = {op.inputs[0]: op.outputs[0] for op in program.ops if op.kind == "Reshape"}
    for op in program.ops:
        if op.kind == "FoldImage":
            made = op.outputs[0]
            kept = program.spec(made).memory.buffer == "host"
            found.setdefault(op.inputs[0], []).append((reshaped[made] if kept else made, op))
    return found


def sent_values(program: Program) -> list[str]:
    """What the host sends at every call, in order: inputs, or what it folds of them."""
    folds = folded_inputs(program)
    return [
        sent
        for name in program.inputs
        for sent in ([value for value, _ in folds[name]] if name in folds else [name])
    ]


def fold_inputs(program: Program, arrays: Sequence[Array]) -> list[Array]:
    """The arrays of a call as they reach the device: those of ``sent_values``."""
    folds = folded_inputs(program)
    made: list[Array] = []
    for name, array in zip(program.inputs, arrays, strict=True):
        if name not in folds:
            made.append(array)
        for value, op in folds.get(name, []):
            made.append(np.ascontiguousarray(fold_image(op, array, program.spec(value).shape)))
    return made
