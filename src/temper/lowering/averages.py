"""Averages of whole images, and values of whole images spread over their pixels.

A flat channels-last image is rows of channels, so an average over its pixels is a matmul with a
constant: each image's row of it holds 1/(H*W) at the image's pixels. It reads tiles as they lie,
wherever images begin, and leaves the averages of all images side by side in one row of tiles.
A long sum is cut into slices that the cores share; a reduction sums what they made. The way back,
a gate of (N, C, 1, 1) beside an image, is a matmul with the same pattern of ones: its result lies
as the image does, in the same shards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from temper.lowering.builder import Builder, Value
from temper.passes.program_moves import SRAM_BYTES, op_ns
from temper.program import Op, TensorSpec
from temper.program.matmul_config import choose
from temper.program.tensor import TILE, Layout, divisors

# Elements of a constant matrix: 8 MB in bfloat16. Beyond it the matrix costs more than the image.
_MOST = 4 << 20
# Formats whose products a matmul takes whole; float32 is reduced as it is.
_WHOLE = frozenset({"bfloat16", "bfloat8_b"})
# Sums are kept in float32, every bit of both operands counts.
_AVERAGE = {"fidelity": "HiFi4", "fp32_acc": True, "packer_l1_acc": True, "approx": False}
# A one takes a single phase of its side; two phases hold every bit of the other.
_SPREAD = {"fidelity": "HiFi2", "fp32_acc": False, "packer_l1_acc": True, "approx": False}


@dataclass(frozen=True)
class _Way:
    """How to average: slices of a matmul, or a reduction in a layout."""

    time_ns: float
    slices: int = 0  # 0: a reduction
    layout: Layout = "tile"


def average(b: Builder, flat: Value, name: str) -> Value:
    """The mean over H and W of a flat image, as a flat image of one pixel for each sample."""
    assert flat.image is not None
    n, c = flat.image[:2]
    way = min(_ways(b, flat), key=lambda one: one.time_ns)
    if way.slices:
        made = _by_matmul(b, flat, way.slices, name)
    else:
        made = _by_reduction(b, flat, way.layout, name)
    return replace(made, shape=(n, c, 1, 1), image=(n, c, 1, 1))


def _ways(b: Builder, flat: Value) -> Iterator[_Way]:
    assert flat.image is not None
    n, c, h, w = flat.image
    pixels, rows = h * w, n * h * w
    spec = b.spec(flat)
    whole = replace(spec, shape=(n, 1, pixels, c), layout="tile")
    mean = replace(whole, shape=(n, 1, 1, c))
    means = replace(whole, shape=(n, c))
    reduce = Op("Reduce", ("x",), ("y",), {"function": "mean", "dims": [2], "keepdim": True})
    if not b.lazy_layout:
        yield _Way(0.0)
        return
    if n == 1 or pixels % TILE == 0:
        moved = _time(b, Op("Reshape", ("x",), ("y",)), [mean], means) if n > 1 else 0.0
        yield _Way(_reduce_ns(b, reduce, whole, mean) + moved)
    else:
        fmt = "bfloat16" if spec.format in _WHOLE else spec.format
        as_rows, as_mean, as_means = (
            TensorSpec(one.shape, fmt, "row_major") for one in (whole, mean, means)
        )
        yield _Way(
            _time(b, Op("Untilize", ("x",), ("y",)), [whole], as_rows)
            + _time(b, reduce, [as_rows], as_mean)
            + _time(b, Op("Tilize", ("x",), ("y",)), [as_means], means),
            layout="row_major",
        )
    if spec.format not in _WHOLE or not b.options["enable_const_eval"] or n * rows > _MOST:
        return
    most = 2 * b.chip.compute_cores
    for slices in divisors(rows // TILE) if rows % TILE == 0 else [1]:
        if slices > most:
            break
        depth = rows // slices
        parts = replace(whole, shape=(slices, n, c))
        matrix = TensorSpec((slices, n, depth))
        time_ns = _matmul_ns(b, _AVERAGE, matrix, replace(whole, shape=(slices, depth, c)), parts)
        if slices > 1:
            total = Op("Reduce", ("x",), ("y",), {"function": "sum", "dims": [0], "keepdim": True})
            time_ns += _reduce_ns(b, total, parts, means)
        yield _Way(time_ns, slices)


def _time(b: Builder, op: Op, inputs: list[TensorSpec], out: TensorSpec) -> float:
    return op_ns(op, inputs, out, b.chip, b.level >= 2)


def _reduce_ns(b: Builder, op: Op, x: TensorSpec, out: TensorSpec) -> float:
    """A reduction in tiles; ttnn fills padding first."""
    padded = x.padded_shape != x.shape
    filled = _time(b, Op("FillPad", ("x",), ("y",)), [x], x) if padded else 0.0
    return filled + _time(b, op, [x], out)


def _matmul_ns(
    b: Builder, compute: Mapping[str, Any], a: TensorSpec, x: TensorSpec, out: TensorSpec
) -> float:
    """The faster of the programs that placement would choose from."""
    batch, m, k = a.matrix
    times = []
    for grid in (None, b.chip.grid):
        config = choose(
            batch, m, k, x.matrix[2], a, x, out, b.chip, fp32_acc=compute["fp32_acc"],
            core_grid=grid,
        )  # fmt: skip
        op = Op("Matmul", ("a", "x"), ("y",), {**compute, "config": config.to_attrs()})
        times.append(_time(b, op, [a, x], out))
    return min(times)


def _by_reduction(b: Builder, flat: Value, layout: Layout, name: str) -> Value:
    """Each image a batch of its own; images that end inside a tile are parted as rows."""
    assert flat.image is not None
    n, c, h, w = flat.image
    source = b.in_layout(replace(flat, image=None), layout)
    rows = b.emit("Reshape", [source], (n, 1, h * w, c), flat.dtype, name=name, layout=layout)
    attrs = {"function": "mean", "dims": [2], "keepdim": True}
    mean = b.emit("Reduce", [rows], (n, 1, 1, c), flat.dtype, attrs, name=name, layout=layout)
    # One row of tiles for all images: a row by itself would fill a tile with padding.
    mean = b.emit("Reshape", [mean], (1, 1, n, c), flat.dtype, name=name, layout=layout)
    return b.in_layout(mean, "tile")


def _by_matmul(b: Builder, flat: Value, slices: int, name: str) -> Value:
    assert flat.image is not None
    n, c, h, w = flat.image
    rows = n * h * w
    key = ("average", n, h * w, slices)
    matrix = b.on_device(b.shared_constant(key, lambda: _averaging(n, h * w, slices)), "bfloat16")
    source = b.in_layout(replace(flat, image=None), "tile")
    if slices == 1:
        return b.emit("Matmul", [matrix, source], (1, 1, n, c), flat.dtype, _AVERAGE, name=name)
    cut = b.emit("Reshape", [source], (slices, rows // slices, c), flat.dtype, name=name)
    parts = b.emit("Matmul", [matrix, cut], (slices, n, c), flat.dtype, _AVERAGE, name=name)
    total = {"function": "sum", "dims": [0], "keepdim": True}
    made = b.emit("Reduce", [parts], (1, n, c), flat.dtype, total, name=name)
    return b.emit("Reshape", [made], (1, 1, n, c), flat.dtype, name=name)


def _averaging(n: int, pixels: int, slices: int) -> torch.Tensor:
    """The matrix of means in slices along its depth.

    1/pixels is no bfloat16 as a rule: each image gets its two neighbours in turn, so that the
    weights of an image sum to one.
    """
    near = torch.tensor(1.0 / pixels).to(torch.bfloat16)
    away = math.inf if float(near) * pixels < 1.0 else 0.0
    other = torch.nextafter(near, torch.tensor(away, dtype=torch.bfloat16))
    step = float(other) - float(near)
    missing = round((1.0 - float(near) * pixels) / step) if float(near) * pixels != 1.0 else 0
    place = torch.arange(pixels)
    turned = (place + 1) * missing // pixels > place * missing // pixels
    weights = torch.where(turned, float(other), float(near))
    matrix = (torch.eye(n)[:, :, None] * weights).reshape(n, n * pixels)
    if slices == 1:
        return matrix
    return matrix.view(n, slices, -1).permute(1, 0, 2).contiguous()


def beside(b: Builder, image: Value, gate: Value) -> tuple[Value, Value] | None:
    """A flat image and a value of each sample and channel, so that they broadcast as they lie.

    One value for each channel is a row as it is. Else the values are spread over the pixels, or
    each image is a batch of its own where that moves nothing; None where neither can be.
    """
    assert image.image is not None
    n, c, h, w = image.image
    pixels, rows, spec = h * w, n * h * w, b.spec(image)
    if n == 1:
        return image, _row(b, gate)
    if not b.lazy_layout or spec.layout != "tile":
        return None
    full = replace(spec, shape=(1, 1, rows, c))
    spreads = spec.format in _WHOLE and bool(b.options["enable_const_eval"]) and n * rows <= _MOST
    in_shards = spreads and b.level >= 2 and spec.size_bytes <= SRAM_BYTES
    if pixels % TILE == 0 and not in_shards:
        whole, row = replace(full, shape=(n, 1, pixels, c)), replace(full, shape=(n, 1, 1, c))
        mul = Op("BinaryNg", ("x", "g"), ("y",), {"function": "mul"})
        one_by_one = _time(b, mul, [whole, row], whole)
        spreading = _time(b, mul, [full, full], full) if spreads else math.inf
        if spreads:
            pattern = TensorSpec((rows, n), "bfloat8_b")
            spreading += _matmul_ns(b, _SPREAD, pattern, replace(full, shape=(n, c)), full)
        if one_by_one <= spreading:
            x = b.emit("Reshape", [image], whole.shape, image.dtype, name=image.name)
            return x, b.emit("Reshape", [_row(b, gate)], row.shape, gate.dtype, name=gate.name)
    if not spreads:
        return None
    ones = b.shared_constant(
        ("spread", n, pixels), lambda: torch.eye(n).repeat_interleave(pixels, 0)
    )
    ones = b.on_device(ones, "bfloat8_b")
    made = b.emit(
        "Matmul", [ones, _row(b, gate)], (1, 1, rows, c), gate.dtype, _SPREAD, name=gate.name
    )
    return image, made


def _row(b: Builder, gate: Value) -> Value:
    """Values of (N, C, 1, 1) as rows of tiles, (1, 1, N, C)."""
    return replace(b.in_layout(b.flat(gate), "tile"), image=None)
