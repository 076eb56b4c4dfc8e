"""Convolutions that ttnn runs as matmuls: pointwise ones, and patches that do not overlap.

With stride 1, no padding and no groups a 1x1 convolution over flat channels-last rows is a matmul
of the rows with the prepared weight; ttnn calls its matmul with its own automatic config, and the
profiler shows MatmulDeviceOperation. A kernel as large as its stride (the patch embedding of a
vision transformer) over an image in rows is folded first: each patch becomes one row. Over tiles
the fold would take every tile apart twice, which costs several times the convolution: there the
convolution gathers its patches itself. Fidelity, accumulator and activations stay the
convolution's.
"""

from __future__ import annotations

from temper.program.conv_config import Window, window_of
from temper.program.op import Op
from temper.program.program import Program
from temper.program.table import KINDS
from temper.program.tensor import TensorSpec

_KEPT = ("activations", "fidelity", "fp32_acc", "packer_l1_acc", "approx")


def convolutions_to_matmuls(program: Program) -> Program:
    """The program with every such convolution that has a prepared weight as a matmul."""
    values = dict(program.values)
    ops: list[Op] = []
    for op in program.ops:
        ops += _rewritten(op, values)
    return program if tuple(ops) == program.ops else program.replace(values=values, ops=tuple(ops))


def _rewritten(op: Op, values: dict[str, TensorSpec]) -> list[Op]:
    if op.kind != "Conv2d" or not op.attr("prepared") or op.attr("groups") != 1:
        return [op]
    window, weight = window_of(op), values[op.inputs[1]]
    depth = window.kernel[0] * window.kernel[1] * window.in_channels
    if weight.shape[-2:] != (depth, window.out_channels):
        return [op]
    attrs = {name: op.attr(name) for name in _KEPT if name in KINDS["Matmul"].attrs}
    if window.is_matmul:
        return [Op("Matmul", op.inputs, op.outputs, attrs, op.source)]
    if not window.is_patches or values[op.inputs[0]].layout != "row_major":
        return [op]
    moves, rows = _fold(op, window, values)
    return [*moves, Op("Matmul", (rows, *op.inputs[1:]), op.outputs, attrs, op.source)]


def _fold(op: Op, w: Window, values: dict[str, TensorSpec]) -> tuple[list[Op], str]:
    """Rows of patches, each in the weight's order of kernel row, kernel column, channel."""
    down, across = w.kernel
    x = values[op.inputs[0]]
    shapes = [
        (w.batch * w.out_h, down, w.out_w, across * w.in_channels),
        (w.batch * w.out_h, w.out_w, down, across * w.in_channels),
        (1, 1, w.out_rows, down * across * w.in_channels),
    ]
    kinds = [("Reshape", {}), ("Permute", {"dims": [0, 2, 1, 3]}), ("Reshape", {})]
    made: list[Op] = []
    name = op.inputs[0]
    for number, (shape, (kind, attrs)) in enumerate(zip(shapes, kinds, strict=True)):
        fresh = f"{op.outputs[0]}__fold{number}"
        values[fresh] = TensorSpec(shape, x.format, x.layout, x.memory)
        made.append(Op(kind, (name,), (fresh,), attrs, op.source))
        name = fresh
    tiles = f"{op.outputs[0]}__fold_tiles"  # a matmul reads tiles
    values[tiles] = TensorSpec(shapes[-1], x.format, "tile", x.memory)
    return [*made, Op("Tilize", (name,), (tiles,), {}, op.source)], tiles
