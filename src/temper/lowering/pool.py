"""Pooling and upsampling of flat channels-last images."""

from __future__ import annotations

from dataclasses import replace

import torch

from temper.graph.node import Node
from temper.lowering.averages import average
from temper.lowering.builder import Builder, Value
from temper.lowering.data import reshape
from temper.lowering.elementwise import arguments, result
from temper.lowering.registry import lowers
from temper.lowering.window import pair
from temper.program.tensor import Layout

aten = torch.ops.aten


def _pool(
    b: Builder,
    node: Node,
    function: str,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Value | None:
    val = node.meta["val"]
    first = val[0] if isinstance(val, (tuple, list)) else val
    wanted = tuple(int(s) for s in first.shape)
    shape = (1, *wanted) if len(wanted) == 3 else wanted
    x = b[node.args[0]]
    flat = b.flat(x if wanted == shape else reshape(b, x, (1, *x.shape), node.name))
    assert flat.image is not None
    h, w = flat.image[2:]
    whole = not any(padding) and kernel[0] >= h and kernel[1] >= w
    if function == "avg" and divisor is None and whole and (ceil_mode or kernel == [h, w]):
        return spatial_mean(b, node, flat)
    if ceil_mode and whole:
        kernel, stride, ceil_mode = [h, w], [h, w], False
    out = _pooled(
        b, node, flat, function, kernel, stride or kernel, padding, dilation, shape,
        ceil_mode=ceil_mode, count_include_pad=count_include_pad, divisor=divisor,
    )  # fmt: skip
    return reshape(b, b.settle(out), wanted, node.name)


def _pooled(
    b: Builder,
    node: Node,
    flat: Value,
    function: str,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    shape: tuple[int, ...],
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
    layout: Layout = "row_major",
) -> Value:
    """One pool over a flat image, in tiles again; large ones write rows, as ttnn's pool does."""
    assert flat.image is not None
    n, c, h, w = flat.image
    # Tiles are turned into rows by the halo that ttnn puts before a pool.
    out = b.emit(
        "Pool2d",
        [replace(flat, image=None)],
        (1, 1, shape[0] * shape[2] * shape[3], c),
        flat.dtype,
        {
            "function": function,
            "batch": n,
            "in_h": h,
            "in_w": w,
            "channels": c,
            "kernel": kernel,
            "stride": stride,
            "padding": [padding[0], padding[0], padding[1], padding[1]],
            "dilation": dilation,
            "ceil_mode": ceil_mode,
            "count_include_pad": count_include_pad,
            "divisor": divisor,
        },
        name=node.name,
        layout=layout,
    )
    return replace(b.in_layout(out, "tile"), shape=shape, image=shape)


@lowers(aten.max_pool2d.default)
def lower_max_pool(b: Builder, node: Node) -> Value | None:
    """Max pooling."""
    args = [*node.args[1:], *[None] * 5]
    return _pool(
        b,
        node,
        "max",
        pair(args[0]),
        pair(args[1]) if args[1] else [],
        pair(args[2] or 0),
        pair(args[3] or 1),
        bool(args[4]),
    )


@lowers(aten.max_pool2d_with_indices.default)
def lower_max_pool_indices(b: Builder, node: Node) -> Value | tuple[Value, ...] | None:
    """Only where nobody reads the indices."""
    if any(user.args[1] == 1 and user.users for user in node.users):
        return None
    out = lower_max_pool(b, node)
    return None if out is None else (out, out)


@lowers(aten.avg_pool2d.default)
def lower_avg_pool(b: Builder, node: Node) -> Value | None:
    """Average pooling."""
    args = [*node.args[1:], *[None] * 6]
    include = True if args[4] is None else bool(args[4])
    return _pool(
        b,
        node,
        "avg",
        pair(args[0]),
        pair(args[1]) if args[1] else [],
        pair(args[2] or 0),
        [1, 1],
        bool(args[3]),
        include,
        args[5],
    )


def adaptive_pool(b: Builder, node: Node, function: str) -> Value | None:
    """A pool to a given size where every window is of the same one; else None."""
    val = node.meta["val"]
    first = val[0] if isinstance(val, (tuple, list)) else val
    x = b[node.args[0]]
    (h, w), (oh, ow) = x.shape[-2:], first.shape[-2:]
    if (oh, ow) == (1, 1) and function == "avg":
        return spatial_mean(b, node, x)
    if h % oh or w % ow:
        return None
    return _pool(b, node, function, [h // oh, w // ow], [h // oh, w // ow], [0, 0], [1, 1], False)


@lowers(aten.adaptive_max_pool2d.default)
def lower_adaptive_max(b: Builder, node: Node) -> tuple[Value, ...] | None:
    """Only where nobody reads the indices."""
    if any(user.args[1] == 1 and user.users for user in node.users):
        return None
    out = adaptive_pool(b, node, "max")
    return None if out is None else (out, out)


def spatial_mean(b: Builder, node: Node, x: Value) -> Value:
    """The mean over H and W: one row of channels for each image."""
    shape, dtype = result(node)
    if len(x.shape) == 3:
        x = reshape(b, x, (1, *x.shape), node.name)
    mean = average(b, b.flat(x), node.name)
    if shape == mean.shape:
        return b.settle(mean)
    return b.emit("Reshape", [replace(mean, image=None)], shape, dtype, name=node.name)


def upsample(b: Builder, node: Node, mode: str) -> Value:
    """By whole factors, in ttnn's own op."""
    shape, dtype = result(node)
    n, c, h, w = b[node.args[0]].shape
    corners = bool(arguments(node).get("align_corners", False))
    flat = b.flat(b[node.args[0]])
    nhwc = b.emit("Reshape", [replace(flat, image=None)], (n, h, w, c), dtype, name=node.name)
    out = b.emit(
        "Upsample",
        [b.in_layout(nhwc, "row_major")],
        (n, shape[2], shape[3], c),
        dtype,
        {
            "scale": [shape[2] / h, shape[3] / w],
            "out_size": list(shape[2:]),
            "align_corners": corners,
            "mode": mode,
        },
        name=node.name,
        layout="row_major",
    )
    out = b.in_layout(out, "tile")
    out = b.emit("Reshape", [out], (1, 1, n * shape[2] * shape[3], c), dtype, name=node.name)
    return b.settle(replace(out, shape=shape, image=shape))
