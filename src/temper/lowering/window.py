"""Convolutions on flat channels-last images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from temper.graph.node import Node
from temper.lowering.builder import DEVICE_FORMATS, Builder, Value
from temper.lowering.data import permute, reshape, slice_
from temper.lowering.elementwise import arguments, result
from temper.lowering.grouped import group_runs
from temper.lowering.registry import lowers
from temper.lowering.stem import fold_stem
from temper.program import Op, TensorSpec
from temper.program.compute_config import default_compute
from temper.program.tensor import BLOCK_FORMATS

aten = torch.ops.aten


def pair(value: Any) -> list[int]:
    """One number or two as two."""
    values = [int(v) for v in (value if isinstance(value, Sequence) else [value])]
    return values * 2 if len(values) == 1 else values


@dataclass(frozen=True)
class _Convolution:
    """Operands and attributes of a convolution, or of a run of its channels."""

    node: Node
    flat: Value
    weight: Value
    bias: Value | None
    rows: int  # of the result
    attrs: dict[str, Any]


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
    stem = None
    if not transposed and _is_grouped_product(b, weight, stride, padding, groups):
        weight, groups = _spread_groups(b, weight, groups), 1
    if not transposed and groups == 1 and dilation == [1, 1]:
        stem = fold_stem(b, x, weight, stride=stride, padding=padding, out_hw=out_image[2:])
    if stem is not None:
        flat, weight, stride, padding = stem.flat, stem.weight, stem.stride, stem.padding
    else:
        flat = b.flat(x)
    assert flat.image is not None
    n, c, h, w = flat.image
    attrs: dict[str, Any] = {
        "batch": n, "in_h": h, "in_w": w, "kernel": [1, *weight.shape[2:]][-2:], "stride": stride,
        "padding": padding, "dilation": dilation, "groups": groups, "in_channels": c,
        "out_channels": out_image[1], "prepared": True,
    }  # fmt: skip
    if transposed:
        attrs["output_padding"] = output_padding or [0, 0]
    flat = replace(flat, image=None)
    rows = out_image[0] * out_image[2] * out_image[3]
    whole = _Convolution(node, flat, weight, bias, rows, attrs)
    runs = [groups] if transposed else _runs(b, whole)
    out = _window(b, whole) if len(runs) == 1 else _in_runs(b, whole, runs)
    return replace(out, shape=out_image, image=out_image)


def _window(b: Builder, conv: _Convolution) -> Value:
    """The op and the preparation of its weights."""
    node, weight, bias, attrs = conv.node, conv.weight, conv.bias, conv.attrs
    transposed = "output_padding" in attrs
    kernel, out_channels = attrs["kernel"], attrs["out_channels"]
    deep, wide = (0, 1) if transposed else (1, 0)
    prepared_shape = (1, 1, kernel[0] * kernel[1] * weight.shape[deep], weight.shape[wide])
    fmt = _weight_format(b, node, weight)
    weight = b.on_device(weight, fmt)
    bias = b.on_device(bias, fmt) if bias is not None else None
    once = bool(b.options["enable_conv_weight_preparation"])
    form = {"groups": attrs["groups"], "transposed": transposed}
    prepared = _prepare(b, weight, prepared_shape, form, once)
    return b.emit(
        "ConvTranspose2d" if transposed else "Conv2d",
        [conv.flat, prepared] + ([bias] if bias is not None else []),
        (1, 1, conv.rows, out_channels),
        result(node)[1],
        attrs,
        name=node.name,
    )


def _runs(b: Builder, conv: _Convolution) -> list[int]:
    """Groups of each run of channels that is convolved by itself."""
    node, weight, bias, attrs = conv.node, conv.weight, conv.bias, conv.attrs
    known = weight.const and (bias is None or bias.const) and b.options["enable_const_eval"]
    if attrs["groups"] == 1 or not b.lazy_layout or not known:
        return [attrs["groups"]]
    dtype = result(node)[1]
    fmt = _weight_format(b, node, weight)
    x = replace(b.spec(conv.flat), layout="tile")
    deep = math.prod(attrs["kernel"]) * weight.shape[1]
    given = [x, TensorSpec((1, 1, deep, weight.shape[0]), fmt)]
    if bias is not None:
        given.append(TensorSpec((weight.shape[0],), fmt))
    out = TensorSpec((1, 1, conv.rows, attrs["out_channels"]), b.format_of(dtype))
    computed = {**default_compute("Conv2d", given, [out], b.chip.arch, b.level), **attrs}
    if b.options["math_fidelity"] not in (None, "", "ttnn_default"):
        computed["fidelity"] = b.options["math_fidelity"]
    names = ("x", "weight", "bias")[: len(given)]
    return group_runs(b, Op("Conv2d", names, ("y",), computed), given, out)


def _in_runs(b: Builder, conv: _Convolution, runs: list[int]) -> Value:
    """One convolution for each run of groups, side by side."""
    weight, bias, attrs = conv.weight, conv.bias, conv.attrs
    flat = b.in_layout(conv.flat, "tile")
    groups, start, parts = attrs["groups"], 0, []
    inside, outside = attrs["in_channels"] // groups, attrs["out_channels"] // groups
    for run in runs:
        stop = start + run
        x = slice_(b, replace(flat, shape=b.spec(flat).shape), 3, start * inside, stop * inside, 1,
                   flat.name)  # fmt: skip
        w = slice_(b, weight, 0, start * outside, stop * outside, 1, weight.name)
        add = bias and slice_(b, bias, 0, start * outside, stop * outside, 1, bias.name)
        own = {**attrs, "groups": run, "in_channels": run * inside, "out_channels": run * outside}
        parts.append(_window(b, replace(conv, flat=x, weight=w, bias=add, attrs=own)))
        start = stop
    shape, dtype = (1, 1, conv.rows, attrs["out_channels"]), result(conv.node)[1]
    return b.emit("Concat", parts, shape, dtype, {"dim": 3}, name=conv.node.name)


# Groups of a pointwise convolution that are spread to one matrix; ttnn's convolution does the same
# with any number, on the way to a kernel that is slower than its matmul.
_MOST_GROUPS = 16


def _is_grouped_product(
    b: Builder, weight: Value, stride: list[int], padding: list[int], groups: int
) -> bool:
    """A 1x1 convolution with few groups: a matmul with zeros between the groups."""
    return (
        1 < groups <= _MOST_GROUPS
        and all(size == 1 for size in (*weight.shape[2:], *stride))
        and not any(padding)
        and weight.const
        and bool(b.options["enable_const_eval"])
    )


def _spread_groups(b: Builder, weight: Value, groups: int) -> Value:
    """(out, in / groups, ...) as (out, in, ...), zero where the groups do not meet."""
    out, deep, *kernel = weight.shape
    rows = out // groups
    parts = []
    for group in range(groups):
        ends = [(group + 1) * rows, deep, *kernel]
        cut = {"begins": [group * rows, *(0 for _ in weight.shape[1:])], "ends": ends,
               "steps": [1] * len(weight.shape)}  # fmt: skip
        part = b.emit("Slice", [weight], (rows, deep, *kernel), weight.dtype, cut,
                      name=weight.name)  # fmt: skip
        sides = [[0, 0], [group * deep, (groups - 1 - group) * deep], *([0, 0] for _ in kernel)]
        parts.append(b.emit("Pad", [part], (rows, groups * deep, *kernel), weight.dtype,
                            {"pads": sides, "value": 0.0}, name=weight.name))  # fmt: skip
    return b.emit("Concat", parts, (out, groups * deep, *kernel), weight.dtype, {"dim": 0},
                  name=weight.name)  # fmt: skip


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
    """Convolution of an image, padding before it included."""
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
    """Transposed convolution."""
    given = arguments(node)
    shape, _ = result(node)
    if len(shape) != 4:
        return None
    pad = pair(given["padding"])
    out = conv(
        b,
        node,
        b[given["input"]],
        b[given["weight"]],
        b[given["bias"]] if given.get("bias") is not None else None,
        stride=pair(given["stride"]),
        dilation=pair(given["dilation"]),
        padding=[pad[0], pad[0], pad[1], pad[1]],
        groups=int(given["groups"]),
        out_image=shape,
        transposed=True,
        output_padding=pair(given["output_padding"]),
    )
    return b.settle(out)
