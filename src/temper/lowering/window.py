"""Convolutions, pooling and upsampling, on flat channels-last images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from temper.graph.node import Node
from temper.lowering.builder import DEVICE_FORMATS, Builder, Value
from temper.lowering.data import permute, reshape
from temper.lowering.elementwise import arguments, result
from temper.lowering.registry import lowers
from temper.lowering.stem import fold_stem
from temper.program.tensor import BLOCK_FORMATS, TILE, Layout

aten = torch.ops.aten

# Images up to this many pixels are averaged by a pool: its window stays in one core's SRAM.
_SMALL_IMAGE = 64


def _pair(value: Any) -> list[int]:
    values = [int(v) for v in (value if isinstance(value, Sequence) else [value])]
    return values * 2 if len(values) == 1 else values


def conv(
    b: Builder,
    node: Node,
    x: Value,
    weight: Value,
    bias: Value | None,
    *,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    out_image: tuple[int, ...],
    transposed: bool = False,
    output_padding: list[int] | None = None,
) -> Value:
    """One convolution; level 0 prepares its weights at every call, level 1 once."""
    dtype = result(node)[1]
    stem = None
    if not transposed and groups == 1 and dilation == [1, 1]:
        stem = fold_stem(b, x, weight, stride=stride, padding=padding, out_hw=out_image[2:])
    if stem is not None:
        flat, weight, stride, padding = stem.flat, stem.weight, stem.stride, stem.padding
    else:
        flat = b.flat(x)
    assert flat.image is not None
    n, c, h, w = flat.image
    kernel = [1, *weight.shape[2:]][-2:]
    out_channels = out_image[1]
    deep, wide = (0, 1) if transposed else (1, 0)
    prepared_shape = (1, 1, kernel[0] * kernel[1] * weight.shape[deep], weight.shape[wide])
    fmt = _weight_format(b, node, weight)
    weight = b.on_device(weight, fmt)
    bias = b.on_device(bias, fmt) if bias is not None else None
    once = bool(b.options["enable_conv_weight_preparation"])
    form = {"groups": groups, "transposed": transposed}
    prepared = _prepare(b, weight, prepared_shape, form, once)
    attrs: dict[str, Any] = {
        "batch": n, "in_h": h, "in_w": w, "kernel": kernel, "stride": stride, "padding": padding,
        "dilation": dilation, "groups": groups, "in_channels": c, "out_channels": out_channels,
        "prepared": True,
    }  # fmt: skip
    if transposed:
        attrs["output_padding"] = output_padding or [0, 0]
    rows = out_image[0] * out_image[2] * out_image[3]
    out = b.emit(
        "ConvTranspose2d" if transposed else "Conv2d",
        [flat, prepared] + ([bias] if bias is not None else []),
        (1, 1, rows, out_channels),
        dtype,
        attrs,
        name=node.name,
    )
    return replace(out, shape=out_image, image=out_image)


def _prepare(
    b: Builder, weight: Value, shape: tuple[int, ...], form: dict[str, Any], once: bool
) -> Value:
    """The weight in the form the convolution reads; at run time unless ``once``."""
    if once and weight.const:
        out = b.emit(
            "PrepareConvWeight",
            [weight],
            shape,
            weight.dtype,
            form,
            name=weight.name,
            fmt=b.spec(weight).format,
        )
        return out
    return b.emit(
        "PrepareConvWeight",
        [replace(weight, const=False)],
        shape,
        weight.dtype,
        form,
        name=weight.name,
        fmt=b.spec(weight).format,
    )


def _weight_format(b: Builder, node: Node, weight: Value) -> str:
    """The format asked for; else what the model's own dtype is on the chip."""
    asked: str | None = (node.meta.get("weight_format") or {}).get("format")
    if asked:
        return asked
    if b.options["activation_dtype"] in BLOCK_FORMATS:
        return DEVICE_FORMATS[weight.dtype]  # formats of activations are no formats of weights
    return b.format_of(weight.dtype)


def _padding_before(b: Builder, source: Node) -> tuple[Node, list[tuple[int, int]]]:
    """A zero pad of H and W before a convolution is the convolution's own padding."""
    none = [(0, 0), (0, 0)]
    if not b.lazy_layout or source.target is not aten.constant_pad_nd.default:
        return source, none
    pads = [int(p) for p in source.args[1]]
    value = source.args[2] if len(source.args) > 2 else 0.0
    if value or len(pads) > 4 or any(p < 0 for p in pads):
        return source, none
    pads += [0] * (4 - len(pads))
    return source.args[0], [(pads[2], pads[3]), (pads[0], pads[1])]


@lowers(aten.conv2d.default, aten.conv2d.padding, aten.conv1d.default, aten.conv1d.padding)
def lowerconv(b: Builder, node: Node) -> Value | None:
    given = arguments(node)
    source, before = _padding_before(b, given["input"])
    x, weight = b[source], b[given["weight"]]
    bias = b[given["bias"]] if given.get("bias") is not None else None
    wanted, dtype = result(node)
    shape = wanted
    if len(wanted) < len(weight.shape):  # an image without a batch dimension
        shape = (1, *wanted)
        x = reshape(b, x, (1, *x.shape), node.name)
    flat_1d = len(weight.shape) == 3
    kernel = list(weight.shape[2:])
    stride, dilation = given["stride"], given["dilation"]
    padding = given["padding"]
    one = [int(v) for v in (stride if isinstance(stride, Sequence) else [stride])]
    step = one * (len(kernel) // len(one)) if len(one) != len(kernel) else one
    spread = [int(v) for v in (dilation if isinstance(dilation, Sequence) else [dilation])]
    spread = spread * (len(kernel) // len(spread))
    if isinstance(padding, str):
        total = [
            d * (k - 1) if padding == "same" else 0 for d, k in zip(spread, kernel, strict=True)
        ]
        sides = [(t // 2, t - t // 2) for t in total]
    else:
        values = [int(v) for v in (padding if isinstance(padding, Sequence) else [padding])]
        values = values * (len(kernel) // len(values))
        sides = [(v, v) for v in values]
    if flat_1d:
        # Channels last at once: (N, C, 1, L) would fill every tile with one row.
        n, c, length = x.shape
        rows = permute(b, b.plain(x), [0, 2, 1], x.name)
        x = b.emit("Reshape", [rows], (1, 1, n * length, c), x.dtype, name=x.name)
        x = replace(x, shape=(n, c, 1, length), image=(n, c, 1, length))
        step, spread, sides = [1, *step], [1, *spread], [(0, 0), *sides]
        before = [(0, 0), before[-1]]
        image: tuple[int, ...] = (shape[0], shape[1], 1, shape[2])
    else:
        image = shape
    padded = [
        s + p
        for side, pad in zip(sides, before, strict=True)
        for s, p in zip(side, pad, strict=True)
    ]
    out = conv(
        b,
        node,
        x,
        weight,
        bias,
        stride=step,
        dilation=spread,
        padding=padded,
        groups=int(given["groups"]),
        out_image=image,
    )
    if flat_1d:
        n, c, length = shape
        rows = b.emit("Reshape", [replace(out, image=None)], (n, length, c), dtype, name=node.name)
        return reshape(b, permute(b, rows, [0, 2, 1], node.name), wanted, node.name)
    return reshape(b, b.settle(out), wanted, node.name)


@lowers(aten.conv_transpose2d.input)
def lower_conv_transpose(b: Builder, node: Node) -> Value | None:
    given = arguments(node)
    shape, _ = result(node)
    if len(shape) != 4:
        return None
    pad = _pair(given["padding"])
    out = conv(
        b,
        node,
        b[given["input"]],
        b[given["weight"]],
        b[given["bias"]] if given.get("bias") is not None else None,
        stride=_pair(given["stride"]),
        dilation=_pair(given["dilation"]),
        padding=[pad[0], pad[0], pad[1], pad[1]],
        groups=int(given["groups"]),
        out_image=shape,
        transposed=True,
        output_padding=_pair(given["output_padding"]),
    )
    return b.settle(out)


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
    if ceil_mode and not any(padding) and kernel[0] >= h and kernel[1] >= w:
        if function == "avg" and divisor is None:
            return spatial_mean(b, node, flat)
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
    args = [*node.args[1:], *[None] * 5]
    return _pool(
        b,
        node,
        "max",
        _pair(args[0]),
        _pair(args[1]) if args[1] else [],
        _pair(args[2] or 0),
        _pair(args[3] or 1),
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
    args = [*node.args[1:], *[None] * 6]
    include = True if args[4] is None else bool(args[4])
    return _pool(
        b,
        node,
        "avg",
        _pair(args[0]),
        _pair(args[1]) if args[1] else [],
        _pair(args[2] or 0),
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
    """The mean over H and W: a reduction over the rows of each channels-last image."""
    shape, dtype = result(node)
    if len(x.shape) == 3:
        x = reshape(b, x, (1, *x.shape), node.name)
    n, c, h, w = x.shape
    flat = b.flat(x)
    if b.lazy_layout and h * w % TILE and h * w <= _SMALL_IMAGE:
        mean = _pooled(
            b, node, flat, "avg", [h, w], [h, w], [0, 0], [1, 1], (n, c, 1, 1), layout="tile"
        )
        return b.emit("Reshape", [replace(mean, image=None)], shape, dtype, name=node.name)
    rows = b.emit("Reshape", [replace(flat, image=None)], (n, 1, h * w, c), dtype, name=node.name)
    mean = b.emit(
        "Reduce",
        [rows],
        (n, 1, 1, c),
        dtype,
        {"function": "mean", "dims": [2], "keepdim": True},
        name=node.name,
    )
    return b.emit("Reshape", [mean], shape, dtype, name=node.name)


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
