"""Reference of the sliding windows: loops over taps on padded arrays, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temper.program import Op, TensorSpec

Array = NDArray[Any]
Product = Callable[[Array, Array], Array]


def _image(op: Op, x: Array, fill: float) -> Array:
    """The flat operand as padded (N, H, W, C)."""
    top, bottom, left, right = op.attr("padding")
    x = x.reshape(op.attr("batch"), op.attr("in_h"), op.attr("in_w"), -1)
    return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)


def _taps(op: Op, x: Array, out_h: int, out_w: int) -> list[Array]:
    """For each tap of the kernel, the (N, out_h, out_w, C) values that it touches."""
    (kh, kw), (sh, sw), (dh, dw) = op.attr("kernel"), op.attr("stride"), op.attr("dilation")
    rows = [slice(i * dh, i * dh + sh * (out_h - 1) + 1, sh) for i in range(kh)]
    columns = [slice(j * dw, j * dw + sw * (out_w - 1) + 1, sw) for j in range(kw)]
    return [x[:, row, column] for row in rows for column in columns]


def _out_size(op: Op, x: Array) -> tuple[int, int]:
    (kh, kw), (sh, sw), (dh, dw) = op.attr("kernel"), op.attr("stride"), op.attr("dilation")
    return (x.shape[1] - dh * (kh - 1) - 1) // sh + 1, (x.shape[2] - dw * (kw - 1) - 1) // sw + 1


def logical_weight(op: Op, weight: Array, transposed: bool) -> Array:
    """(O, C/g, kh, kw), or (C, O/g, kh, kw) transposed, from either form of the weight."""
    kh, kw = op.attr("kernel")
    first, second = op.attr("out_channels"), op.attr("in_channels")
    first, second = (second, first) if transposed else (first, second)
    if not op.attr("prepared"):
        return weight.reshape(first, second // op.attr("groups"), kh, kw)
    if transposed:
        four = weight.reshape(kh, kw, first, second // op.attr("groups"))
        return np.asarray(four.transpose(2, 3, 0, 1))
    four = weight.reshape(kh, kw, second // op.attr("groups"), first)
    return np.asarray(four.transpose(3, 2, 0, 1))


def convolution(op: Op, x: Array, weight: Array, product: Product) -> Array:
    """K runs over (kh, kw, C), as the prepared weight has it."""
    groups = op.attr("groups")
    weight = logical_weight(op, weight, transposed=False)
    image = _image(op, x, 0.0)
    taps = _taps(op, image, *_out_size(op, image))
    parts = []
    for g, group_weight in enumerate(np.split(weight, groups)):
        size = group_weight.shape[1]
        columns = np.concatenate([t[..., g * size : (g + 1) * size] for t in taps], -1)
        matrix = group_weight.transpose(2, 3, 1, 0).reshape(-1, group_weight.shape[0])
        parts.append(product(columns.reshape(-1, columns.shape[-1]), np.ascontiguousarray(matrix)))
    return np.concatenate(parts, -1)


def transposed(op: Op, x: Array, weight: Array, product: Product) -> Array:
    """Every input pixel adds its weighted kernel to the output."""
    (kh, kw), (sh, sw), (dh, dw) = op.attr("kernel"), op.attr("stride"), op.attr("dilation")
    top, bottom, left, right = op.attr("padding")
    batch, in_h, in_w, groups = (
        op.attr("batch"),
        op.attr("in_h"),
        op.attr("in_w"),
        op.attr("groups"),
    )
    weight = logical_weight(op, weight, transposed=True)
    extra_h, extra_w = op.attr("output_padding")
    height, width = (in_h - 1) * sh + dh * (kh - 1) + 1, (in_w - 1) * sw + dw * (kw - 1) + 1
    out = np.zeros((batch, height + extra_h, width + extra_w, op.attr("out_channels")))
    pixels = x.reshape(batch, in_h, in_w, -1)
    outside = weight.shape[1]
    for g, group_weight in enumerate(np.split(weight, groups)):
        size = group_weight.shape[0]
        rows = pixels[..., g * size : (g + 1) * size].reshape(-1, size)
        for i in range(kh):
            for j in range(kw):
                y = product(
                    np.ascontiguousarray(rows), np.ascontiguousarray(group_weight[..., i, j])
                )
                out[
                    :,
                    i * dh : i * dh + sh * (in_h - 1) + 1 : sh,
                    j * dw : j * dw + sw * (in_w - 1) + 1 : sw,
                    g * outside : (g + 1) * outside,
                ] += y.reshape(batch, in_h, in_w, outside)
    out = out[:, top : out.shape[1] - bottom, left : out.shape[2] - right]
    return out.reshape(1, 1, -1, out.shape[-1])


def pool(op: Op, x: Array, spec: TensorSpec) -> Array:
    """Window by window; average pools count padding or not, as asked."""
    maximum = op.attr("function") == "max"
    image = _image(op, x, -np.inf if maximum else 0.0)
    # Windows that hang over the edge exist only with ceil_mode.
    if op.attr("ceil_mode"):
        hang = [(0, 0), (0, op.attr("stride")[0]), (0, op.attr("stride")[1]), (0, 0)]
        image = np.pad(image, hang, constant_values=-np.inf if maximum else np.nan)
        pixels = spec.shape[-2] // op.attr("batch")
        sizes = [(h, pixels // h) for h in range(1, pixels + 1) if pixels % h == 0]
        top = _out_size(op, image)
        out_h, out_w = next(s for s in sizes if s[0] <= top[0] and s[1] <= top[1]
                            and s[0] >= top[0] - 1 and s[1] >= top[1] - 1)  # fmt: skip
    else:
        out_h, out_w = _out_size(op, image)
    taps = np.stack(_taps(op, image, out_h, out_w))
    if maximum:
        return np.asarray(taps.max(0))
    total, count = np.nansum(taps, 0), np.sum(~np.isnan(taps), 0)
    if not op.attr("count_include_pad"):
        inside = _image(op, np.ones_like(x), 0.0)
        if op.attr("ceil_mode"):
            inside = np.pad(inside, hang)
        count = np.stack(_taps(op, inside, out_h, out_w)).sum(0)
    return np.asarray(total / (op.attr("divisor") or count))


def upsample(op: Op, x: Array, spec: TensorSpec) -> Array:
    """Nearest takes the pixel below; bilinear weighs four neighbours, edges repeated."""
    out_h, out_w = spec.shape[1:3]
    in_h, in_w = x.shape[1:3]
    if op.attr("mode").startswith("nearest"):
        rows = np.arange(out_h) * in_h // out_h
        columns = np.arange(out_w) * in_w // out_w
        return np.asarray(x[:, rows][:, :, columns])
    y = _linear(x, 1, out_h, op.attr("align_corners"))
    return _linear(y, 2, out_w, op.attr("align_corners"))


def _linear(x: Array, axis: int, size: int, corners: bool) -> Array:
    n = x.shape[axis]
    if corners:
        place = np.arange(size) * ((n - 1) / (size - 1) if size > 1 else 0.0)
    else:
        place = np.maximum((np.arange(size) + 0.5) * n / size - 0.5, 0)
    low = np.minimum(np.floor(place).astype(int), n - 1)
    high = np.minimum(low + 1, n - 1)
    weight = (place - low).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    return np.asarray(np.take(x, low, axis) * (1 - weight) + np.take(x, high, axis) * weight)
