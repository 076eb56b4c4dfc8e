"""Resizing by any factor and uneven average pools: a matrix for each direction of the image.

Interpolation is linear in the pixels of a row and of a column, so it is a matmul with a constant
matrix from the right, once along each. ttnn's own upsample takes whole factors only.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from temper.graph.node import Node
from temper.lowering.builder import Builder, Value
from temper.lowering.data import permute
from temper.lowering.elementwise import arguments, result
from temper.lowering.pool import adaptive_pool, upsample
from temper.lowering.registry import lowers

aten = torch.ops.aten


@lowers(
    aten.upsample_nearest2d.vec,
    aten.upsample_nearest2d.default,
    aten.upsample_bilinear2d.vec,
    aten.upsample_bilinear2d.default,
)
def lower_upsample(b: Builder, node: Node) -> Value | None:
    """Upsampling by the chip's own op."""
    (_, _, oh, ow), _ = result(node)
    h, w = b[node.args[0]].shape[2:]
    if math.isclose(oh / h, oh // h) and math.isclose(ow / w, ow // w):
        return upsample(b, node, "bilinear" if "bilinear" in str(node.target) else "nearest")
    return by_matrices(b, node)


@lowers(
    aten.upsample_bicubic2d.vec,
    aten.upsample_bicubic2d.default,
    aten._upsample_nearest_exact2d.vec,
    aten._upsample_nearest_exact2d.default,
    aten._upsample_bilinear2d_aa.vec,
    aten._upsample_bilinear2d_aa.default,
    aten._upsample_bicubic2d_aa.vec,
    aten._upsample_bicubic2d_aa.default,
)
def lower_upsample_otherwise(b: Builder, node: Node) -> Value:
    """Other upsampling: a matmul for each direction."""
    return by_matrices(b, node)


@lowers(aten.adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d.default)
def lower_adaptive_avg(b: Builder, node: Node) -> Value | None:
    """Adaptive average pooling."""
    shape, _ = result(node)
    if len(shape) != 4:
        return None
    even = adaptive_pool(b, node, "avg")
    return even if even is not None else by_matrices(b, node)


def by_matrices(b: Builder, node: Node) -> Value:
    """The op along W, then along H."""
    shape, dtype = result(node)
    x = b.plain(b[node.args[0]])
    h, w = x.shape[2:]
    for axis, size, out in ((1, w, shape[3]), (0, h, shape[2])):
        matrix = b.constant(_matrix(node, axis, size, out), "resize")
        if axis == 0:
            x = permute(b, x, [0, 1, 3, 2], node.name)
        x = b.emit("Matmul", [x, matrix], (*x.shape[:-1], out), dtype, name=node.name)
    return permute(b, x, [0, 1, 3, 2], node.name)


def _matrix(node: Node, axis: int, size: int, out: int) -> torch.Tensor:
    """What the op makes of each single pixel of a line of this size: (size, out)."""
    given = arguments(node)
    if given.get("output_size") is not None:
        given["output_size"] = [1, out]
    scales: Any = given.get("scale_factors")
    if scales is not None:
        given["scale_factors"] = [1.0, float(scales[axis])]
    # Of the .default forms, scales_h and scales_w.
    if "scales_w" in given:
        given["scales_w"] = given["scales_w"] if axis == 1 else given.get("scales_h")
        given["scales_h"] = None
    pixels = torch.eye(size, dtype=torch.float32).view(1, size, 1, size)
    names = [a.name for a in node.target._schema.arguments]
    made: torch.Tensor = node.target(pixels, *(given[name] for name in names[1:]))
    return made.reshape(size, out)
