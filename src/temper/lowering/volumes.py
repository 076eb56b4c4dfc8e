"""Convolutions of one and three dimensions by those of two; a deep filter is a sum of planes."""

from __future__ import annotations

from typing import Any

import torch

from temper.graph.node import Node
from temper.lowering.builder import Builder, Value
from temper.lowering.data import permute, reshape, slice_
from temper.lowering.elementwise import arguments, result
from temper.lowering.registry import lowers
from temper.lowering.window import conv

aten = torch.ops.aten


def _triple(value: Any) -> list[int]:
    values = [int(v) for v in value]
    return values * 3 if len(values) == 1 else values


@lowers(aten.conv3d.default)
def lower_conv3d(b: Builder, node: Node) -> Value | None:
    """For each plane of the filter a convolution of all planes that it meets, then their sum."""
    given = arguments(node)
    shape, dtype = result(node)
    x, weight = b.plain(b[given["input"]]), b.plain(b[given["weight"]])
    if len(shape) != 5:
        return None
    stride, padding, dilation = (_triple(given[k]) for k in ("stride", "padding", "dilation"))
    n, c, depth, h, w = x.shape
    _, out_c, out_d, out_h, out_w = shape
    if padding[0]:
        side = padding[0]
        depth += 2 * side
        pads = [[0, 0], [0, 0], [side, side], [0, 0], [0, 0]]
        x = b.emit("Pad", [x], (n, c, depth, h, w), x.dtype, {"pads": pads}, name=node.name)
    x = permute(b, x, [0, 2, 1, 3, 4], node.name)
    total: Value | None = None
    for plane in range(weight.shape[2]):
        first = plane * dilation[0]
        last = first + (out_d - 1) * stride[0] + 1
        met = slice_(b, x, 1, first, last, stride[0], node.name)
        part = slice_(b, weight, 2, plane, plane + 1, 1, node.name)
        bias = b[given["bias"]] if given.get("bias") is not None and plane == 0 else None
        made = conv(
            b,
            node,
            reshape(b, met, (n * out_d, c, h, w), node.name),
            reshape(b, part, (*weight.shape[:2], *weight.shape[3:]), node.name),
            bias,
            stride=stride[1:],
            padding=[p for side in padding[1:] for p in (side, side)],
            dilation=dilation[1:],
            groups=int(given["groups"]),
            out_image=(n * out_d, out_c, out_h, out_w),
        )
        made = b.plain(made)
        if total is not None:
            made = b.emit(
                "BinaryNg", [total, made], made.shape, dtype, {"function": "add"}, name=node.name
            )
        total = made
    assert total is not None
    out = reshape(b, total, (n, out_d, out_c, out_h, out_w), node.name)
    return permute(b, out, [0, 2, 1, 3, 4], node.name)


@lowers(aten.conv_transpose1d.default)
def lower_conv_transpose1d(b: Builder, node: Node) -> Value | None:
    """Transposed convolution of one dimension."""
    given = arguments(node)
    shape, _ = result(node)
    if len(shape) != 3:
        return None
    x, weight = b.plain(b[given["input"]]), b.plain(b[given["weight"]])
    stride, padding, dilation, more = (
        int(given[k][0]) for k in ("stride", "padding", "dilation", "output_padding")
    )
    n, c, length = x.shape
    made = conv(
        b,
        node,
        reshape(b, x, (n, c, 1, length), node.name),
        reshape(b, weight, (*weight.shape[:2], 1, weight.shape[2]), node.name),
        b[given["bias"]] if given.get("bias") is not None else None,
        stride=[1, stride],
        padding=[0, 0, padding, padding],
        dilation=[1, dilation],
        groups=int(given["groups"]),
        out_image=(shape[0], shape[1], 1, shape[2]),
        transposed=True,
        output_padding=[0, more],
    )
    return reshape(b, b.plain(made), shape, node.name)
