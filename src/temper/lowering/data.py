"""Data movement: shapes, slices, concatenation, padding, running sums."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import torch

from temper.graph.node import Node
from temper.lowering.builder import Builder, Value, volume
from temper.lowering.elementwise import result
from temper.lowering.registry import lowers
from temper.program.tensor import turned_by_transpose

aten = torch.ops.aten


@lowers(operator.getitem)
def lower_getitem(b: Builder, node: Node) -> Value:
    """One of several results."""
    values = b.env[node.args[0]]
    assert isinstance(values, tuple)
    chosen: Value = values[node.args[1]]
    return chosen


@lowers(
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.flatten.using_ints,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze.default,
    aten.unflatten.int,
)
def lower_reshape(b: Builder, node: Node) -> Value:
    """Views and reshapes."""
    return reshape(b, b[node.args[0]], result(node)[0], node.name)


def reshape(b: Builder, x: Value, shape: tuple[int, ...], name: str) -> Value:
    """To another shape; nothing where the shape is the same already."""
    if x.shape == shape:
        return x
    if x.image is not None and x.image[2] == x.image[3] == 1:
        return b.emit("Reshape", [replace(x, image=None)], shape, x.dtype, name=name)
    x = b.plain(x)
    return b.emit("Reshape", [x], shape, x.dtype, name=name, layout=b.spec(x).layout)


@lowers(aten.permute.default, aten.transpose.int, aten.t.default)
def lower_permute(b: Builder, node: Node) -> Value:
    """Permutes and transposes."""
    x = b[node.args[0]]
    rank = len(x.shape)
    if node.target is aten.permute.default:
        dims = [int(d) % rank for d in node.args[1]]
    else:
        swap = (0, 1) if node.target is aten.t.default else node.args[1:3]
        first, second = (int(d) % max(rank, 1) for d in swap)
        dims = list(range(rank))
        if rank > 1:
            dims[first], dims[second] = dims[second], dims[first]
    return permute(b, x, dims, node.name)


def permute(b: Builder, x: Value, dims: list[int], name: str) -> Value:
    """A transpose where two neighbours swap, else a permute; nothing for the identity."""
    rank = len(dims)
    if dims == list(range(rank)):
        return x
    if x.image is not None and x.shape == x.image and dims == [0, 2, 3, 1]:
        n, c, h, w = x.image
        return b.emit("Reshape", [replace(x, image=None)], (n, h, w, c), x.dtype, name=name)
    x = b.plain(x)
    shape = tuple(x.shape[d] for d in dims)
    moved = [i for i, d in enumerate(dims) if i != d]
    if len(moved) == 2 and turned_by_transpose(rank, *moved):
        return b.emit(
            "Transpose",
            [x],
            shape,
            x.dtype,
            {"dims": [moved[0] - rank, moved[1] - rank]},
            name=name,
        )
    return b.emit("Permute", [x], shape, x.dtype, {"dims": dims}, name=name)


@lowers(aten.expand.default, aten.repeat.default)
def lower_expand(b: Builder, node: Node) -> Value:
    """Dimensions of length 1 repeated."""
    return expand(b, b.plain(b[node.args[0]]), result(node)[0], node.name)


def expand(b: Builder, x: Value, shape: tuple[int, ...], name: str) -> Value:
    """Repeated to a shape whose dimensions are multiples of x's; nothing where it has it."""
    lead = (1,) * (len(shape) - len(x.shape))
    if lead:
        x = reshape(b, x, (*lead, *x.shape), name)
    repeats = [o // i if i else 1 for o, i in zip(shape, x.shape, strict=True)]
    if all(r == 1 for r in repeats):
        return x
    return b.emit("Repeat", [x], shape, x.dtype, {"repeats": repeats}, name=name)


@lowers(aten.slice.Tensor)
def lower_slice(b: Builder, node: Node) -> Value:
    """A range of one dimension."""
    args = [*node.args[1:], *[None] * 4]
    dim = int(args[0] or 0)
    x = b[node.args[0]]
    size = x.shape[dim]
    start, stop = bound(args[1], 0, size), bound(args[2], size, size)
    return slice_(b, x, dim % len(x.shape), start, stop, int(args[3] or 1), node.name)


def slice_(b: Builder, x: Value, dim: int, start: int, stop: int, step: int, name: str) -> Value:
    """Elements start:stop:step of one dimension; nothing for the whole."""
    size = x.shape[dim]
    stop = max(start, min(stop, size))
    if (start, stop, step) == (0, size, 1):
        return x
    if x.image is not None and dim == 1 and x.shape == x.image:
        n, _, h, w = x.image
        count = len(range(start, stop, step))
        rows = n * h * w
        out = b.emit(
            "Slice",
            [replace(x, image=None)],
            (1, 1, rows, count),
            x.dtype,
            {"begins": [0, 0, 0, start], "ends": [1, 1, rows, stop], "steps": [1, 1, 1, step]},
            name=name,
        )
        image = (n, count, h, w)
        return replace(out, shape=image, image=image)
    x = b.plain(x)
    begins, ends, steps = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    begins[dim], ends[dim], steps[dim] = start, stop, step
    shape = list(x.shape)
    shape[dim] = len(range(start, stop, step))
    return b.emit(
        "Slice", [x], shape, x.dtype, {"begins": begins, "ends": ends, "steps": steps}, name=name
    )


def bound(value: Any, default: int, size: int) -> int:
    """A slice's bound as torch takes it: from the end when negative, clipped to the size."""
    if value is None:
        return default
    index = int(value)
    return max(0, min(size, index + size if index < 0 else index))


@lowers(aten.select.int)
def lower_select(b: Builder, node: Node) -> Value:
    """One index of a dimension."""
    x = b[node.args[0]]
    dim, index = int(node.args[1]) % len(x.shape), int(node.args[2])
    index %= x.shape[dim]
    one = slice_(b, x, dim, index, index + 1, 1, node.name)
    return reshape(b, one, result(node)[0], node.name)


@lowers(aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int)
def lower_split(b: Builder, node: Node) -> tuple[Value, ...]:
    """A dimension cut into parts."""
    x = b[node.args[0]]
    unbind = node.target is aten.unbind.int
    position = 1 if unbind else 2
    dim = node.args[position] if len(node.args) > position else node.kwargs.get("dim", 0)
    dim = int(dim) % len(x.shape)
    start = 0
    parts: list[Value] = []
    for part in node.meta["val"]:
        size = 1 if unbind else int(part.shape[dim])
        if not any(u.args[1] == len(parts) for u in node.users):
            parts.append(x)  # nobody reads it: never emitted
        else:
            one = slice_(b, x, dim, start, start + size, 1, node.name)
            parts.append(reshape(b, one, tuple(part.shape), node.name) if unbind else one)
        start += size
    return tuple(parts)


@lowers(aten.cat.default)
def lower_cat(b: Builder, node: Node) -> Value:
    """Tensors behind one another."""
    shape, dtype = result(node)
    parts = [b[a] for a in node.args[0]]
    parts = [p for p in parts if volume(p.shape)]
    dim = int(node.args[1]) if len(node.args) > 1 else int(node.kwargs.get("dim", 0))
    dim %= len(shape)
    if len(parts) == 1:
        return parts[0]
    if len(shape) == 4 and dim == 1 and all(p.image == p.shape for p in parts):
        n, _, h, w = shape
        out = b.emit(
            "Concat",
            [replace(p, image=None) for p in parts],
            (1, 1, n * h * w, shape[1]),
            dtype,
            {"dim": 3},
            name=node.name,
        )
        return replace(out, shape=shape, image=shape)
    parts = [b.on_device(b.plain(p)) for p in parts]
    return b.emit("Concat", parts, shape, dtype, {"dim": dim}, name=node.name)


@lowers(aten.stack.default)
def lower_stack(b: Builder, node: Node) -> Value:
    """Tensors along a new dimension."""
    shape, dtype = result(node)
    dim = int(node.args[1]) if len(node.args) > 1 else 0
    dim %= len(shape)
    one = (*shape[:dim], 1, *shape[dim + 1 :])
    parts = [reshape(b, b.on_device(b.plain(b[a])), one, node.name) for a in node.args[0]]
    return b.emit("Concat", parts, shape, dtype, {"dim": dim}, name=node.name)


@lowers(aten.constant_pad_nd.default)
def lower_pad(b: Builder, node: Node) -> Value:
    """Constant padding."""
    shape, dtype = result(node)
    pads = [int(p) for p in node.args[1]]
    x = b.plain(b[node.args[0]])
    sides = [[0, 0] for _ in shape]
    for i in range(len(pads) // 2):
        dim, (first, last) = len(shape) - 1 - i, pads[2 * i : 2 * i + 2]
        sides[dim] = [max(first, 0), max(last, 0)]
        # A negative pad cuts off.
        x = slice_(b, x, dim, max(-first, 0), x.shape[dim] - max(-last, 0), 1, node.name)
    if not any(map(any, sides)):
        return x
    value = node.args[2] if len(node.args) > 2 else node.kwargs.get("value", 0.0)
    return b.emit(
        "Pad",
        [x],
        shape,
        dtype,
        {"pads": sides, "value": float(value or 0.0)},
        name=node.name,
    )


@lowers(
    aten.clone.default,
    aten.detach.default,
    aten.alias.default,
    aten.contiguous.default,
    aten.lift_fresh_copy.default,
    aten.dropout.default,
)
def lower_identity(b: Builder, node: Node) -> Value | None:
    """Ops that change nothing in inference."""
    if node.target is aten.dropout.default and node.args[2] and node.args[1]:
        return None
    return b[node.args[0]]


@lowers(aten.cumsum.default)
def lower_cumsum(b: Builder, node: Node) -> Value:
    """Running sums."""
    shape, dtype = result(node)
    x = b.plain(b[node.args[0]])
    return b.emit(
        "CumSum",
        [x],
        shape,
        dtype,
        {"dim": int(node.args[1]) % max(1, len(shape))},
        name=node.name,
    )
