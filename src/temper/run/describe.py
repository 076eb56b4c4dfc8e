"""Tensors and op attributes in the words of tt-metal's profiler."""

from __future__ import annotations

import math
from collections.abc import Sequence

from temper.program import TensorSpec
from temper.program.words import BUFFER, SHARDING, datatype, op_attributes
from temper.run.opinfo import OpInfo

# Current tt-metal opens even one chip as a mesh device, whose number in this column is 1.
_DEVICE = "DEV_1"


def dims4(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """W, Z, Y, X: outer dimensions collapsed into W, missing ones 1."""
    padded = (1,) * (4 - len(shape)) + tuple(shape)
    return math.prod(padded[: len(padded) - 3]), padded[-3], padded[-2], padded[-1]


def layout(spec: TensorSpec) -> str:
    """The layout in the profiler's word."""
    return "TILE" if spec.layout == "tile" else "ROW_MAJOR"


def memory(spec: TensorSpec) -> str:
    """Where a tensor lies, in the profiler's words."""
    if spec.memory.buffer == "host":
        return "HOST"
    return f"{_DEVICE}_{BUFFER[spec.memory.buffer]}_{SHARDING[spec.memory.sharding]}"


def shape(spec: TensorSpec) -> str:
    """A shape for people."""
    return "x".join(str(n) for n in spec.shape) or "scalar"


def formats(info: OpInfo) -> str:
    """``BFLOAT16 x BFLOAT8_B => BFLOAT16``."""
    inputs = " x ".join(datatype(spec) for spec in info.inputs[:2])
    outputs = datatype(info.outputs[0]) if info.outputs else ""
    return f"{inputs} => {outputs}"


def location(info: OpInfo) -> str:
    """MLIR's form, as ttrt writes it: the user's line, then the name."""
    source = info.op.source
    # Outside of any module the user's own word for it: the function, as torch names it.
    name = info.name if source.module else str(info.op.attrs.get("function") or info.name)
    if not source.file:
        return f'loc("{name}")'
    return f'loc(fused["{source.file}":{source.line}:0, "{name}"])'


def attributes(info: OpInfo) -> str:
    """``{'name': 'value'; …}`` with ';' for ',' as tt-metal writes it."""
    return op_attributes(info.op, info.inputs, info.outputs, info.chip)
