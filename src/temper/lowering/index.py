"""Lookups and writes by index: embedding, gather, indexing, windows, flips, scatter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from temper.graph.node import Node, is_node
from temper.lowering.builder import Builder, Value, volume
from temper.lowering.data import bound, expand, permute, reshape, slice_
from temper.lowering.elementwise import arguments, cast, operand, result, where
from temper.lowering.registry import lowers
from temper.program.tensor import TILE, Layout

aten = torch.ops.aten


@lowers(aten.embedding.default)
def lower_embedding(b: Builder, node: Node) -> Value:
    """Rows of a table by an index."""
    shape, dtype = result(node)
    return _embed(b, b[node.args[0]], b[node.args[1]], shape, dtype, node.name)


def _embed(
    b: Builder, table: Value, ids: Value, shape: Sequence[int], dtype: torch.dtype, name: str
) -> Value:
    rows = b.in_layout(b.on_device(ids), "row_major")
    if ids.const:  # known now, so the sign that a lookup does not take goes now
        rows = b.on_device(rows, "uint32")
    return look_up(b, rows, b.in_layout(b.on_device(table), "row_major"), shape, dtype, name=name)


def look_up(
    b: Builder, ids: Value, table: Value, shape: Sequence[int], dtype: torch.dtype,
    attrs: Mapping[str, Any] | None = None, *, name: str,
) -> Value:  # fmt: skip
    """Rows of a table; tiles come out of the lookup only where tokens and columns fill them."""
    whole = bool(ids.shape) and ids.shape[-1] % TILE == 0 and shape[-1] % TILE == 0
    layout: Layout = "tile" if whole else "row_major"
    made = b.emit("Embeddings", [ids, table], shape, dtype, attrs, name=name, layout=layout)
    return b.in_layout(made, "tile")


@lowers(aten.gather.default)
def lower_gather(b: Builder, node: Node) -> Value:
    """Elements along a dimension by an index."""
    shape, dtype = result(node)
    x, index = b.plain(b[node.args[0]]), b.plain(b[node.args[2]])
    dim = int(node.args[1]) % max(1, len(x.shape))
    return b.emit("Gather", [x, index], shape, dtype, {"dim": dim}, name=node.name)


# --- indexing: rows of a table, as tt-mlir lowers a general gather -----------------------------


def _looked_up(dtype: torch.dtype) -> bool:
    """Tables of the chip hold floats and truth values; integers are looked up on the host."""
    return dtype.is_floating_point or dtype is torch.bool


@lowers(aten.index.Tensor)
def lower_index(b: Builder, node: Node) -> Value | None:
    """Indexing by tensors, where it is a lookup of rows."""
    x = b.plain(b[node.args[0]])
    places = {d: b[i] for d, i in enumerate(node.args[1]) if i is not None}
    if not _looked_up(x.dtype) or any(i.dtype is torch.bool for i in places.values()):
        return None
    return take(b, x, list(places), _linear(b, x, places, node.name), node.name)


@lowers(aten.index_select.default)
def lower_index_select(b: Builder, node: Node) -> Value | None:
    """Slices along a dimension by an index."""
    x, index = b.plain(b[node.args[0]]), b[node.args[2]]
    if not _looked_up(x.dtype) or not x.shape:
        return None
    return take(b, x, [int(node.args[1]) % len(x.shape)], index, node.name)


@lowers(aten.flip.default)
def lower_flip(b: Builder, node: Node) -> Value | None:
    """Dimensions in reverse."""
    x = b.plain(b[node.args[0]])
    if not _looked_up(x.dtype):
        return None
    for dim in sorted(int(d) % len(x.shape) for d in node.args[1]):
        x = take(b, x, [dim], b.constant(torch.arange(x.shape[dim]).flip(0), "flip"), node.name)
    return x


@lowers(aten.unfold.default)
def lower_unfold(b: Builder, node: Node) -> Value | None:
    """Windows along a dimension."""
    x = b.plain(b[node.args[0]])
    if not _looked_up(x.dtype) or not x.shape:
        return None
    dim, size, step = int(node.args[1]) % len(x.shape), int(node.args[2]), int(node.args[3])
    places = torch.arange(x.shape[dim]).unfold(0, size, step)
    out = take(b, x, [dim], b.constant(places, "windows"), node.name)
    rank = len(x.shape)
    return permute(b, out, [*range(dim + 1), *range(dim + 2, rank + 1), dim + 1], node.name)


@lowers(aten.diagonal.default)
def lower_diagonal(b: Builder, node: Node) -> Value | None:
    """The diagonal of two dimensions."""
    given = arguments(node)
    x = b.plain(b[node.args[0]])
    rank = len(x.shape)
    first, second = (int(given[n]) % rank for n in ("dim1", "dim2"))
    if not _looked_up(x.dtype):
        return None
    rows, columns = x.shape[first], x.shape[second]
    cells = torch.arange(rows * columns).view(rows, columns).diagonal(int(given["offset"]))
    x = permute(
        b, x, [first, second, *(d for d in range(rank) if d not in (first, second))], node.name
    )
    out = take(b, x, [0, 1], b.constant(cells.contiguous(), "diagonal"), node.name)
    return permute(b, out, [*range(1, rank - 1), 0], node.name)


def take(b: Builder, x: Value, dims: list[int], ids: Value, name: str) -> Value:
    """x at these places of ``dims``, which are one flat index; the index's dimensions stand where
    torch's rule puts them: in the place of adjacent ``dims``, else in front."""
    order, adjacent = _front(len(x.shape), dims)
    rest = [x.shape[d] for d in order[len(dims) :]]
    width = volume(rest)
    parts = _parts(width)
    count = volume(x.shape) // max(1, width)
    table = reshape(b, permute(b, x, order, name), (count * parts, width // parts), name)
    flat = reshape(b, b.plain(ids), (volume(ids.shape),), name)
    if parts > 1:
        flat = _in_parts(b, flat, parts, name)
    rows = _embed(b, table, flat, (flat.shape[0], width // parts), x.dtype, name)
    out = reshape(b, rows, (*ids.shape, *rest), name)
    before, places = (min(dims) if adjacent else 0), len(ids.shape)
    back = [*range(places, places + before), *range(places),
            *range(places + before, len(out.shape))]  # fmt: skip
    return permute(b, out, back, name)


# A lookup holds 32 whole rows of its table in a core's SRAM, twice: 1 MB of float32 at this width.
_WIDEST_ROW = 4096


def _parts(width: int) -> int:
    """Into how many equal parts a row is cut so that a lookup fits; 1 where none are equal."""
    least = -(-width // _WIDEST_ROW)
    return next((n for n in range(max(1, least), min(width, 4096) + 1) if width % n == 0), 1)


def _in_parts(b: Builder, ids: Value, parts: int, name: str) -> Value:
    """The places of all parts of these rows, side by side."""
    shape = (ids.shape[0], parts)
    first = b.emit(
        "Unary", [ids], ids.shape, torch.int64, {"functions": [["mul", parts]]}, name=name
    )
    step = b.constant(torch.arange(parts)[None], "parts")
    every = b.emit(
        "BinaryNg", [reshape(b, first, (shape[0], 1), name), step], shape, torch.int64,
        {"function": "add"}, name=name,
    )  # fmt: skip
    return reshape(b, every, (volume(shape),), name)


def _front(rank: int, dims: list[int]) -> tuple[list[int], bool]:
    """The order that brings ``dims`` to the front, and whether they stand side by side."""
    order = [*dims, *(d for d in range(rank) if d not in dims)]
    return order, dims == list(range(dims[0], dims[0] + len(dims)))


def _linear(b: Builder, x: Value, places: dict[int, Value], name: str) -> Value:
    """Several indices as one into the flattened dimensions; negative ones count from the end."""
    total: Value | None = None
    stride = volume([x.shape[d] for d in places])
    for dim, given in places.items():
        size, place = x.shape[dim], b.plain(given)
        stride //= max(1, size)
        below = b.emit(
            "Unary", [place], place.shape, torch.int64, {"functions": [["lt", 0], ["mul", size]]},
            name=name,
        )  # fmt: skip
        one = b.emit(
            "BinaryNg", [place, below], place.shape, torch.int64,
            {"function": "add", "post": [["mul", stride]] if stride != 1 else []}, name=name,
        )  # fmt: skip
        if total is None:
            total = one
        else:
            joint = tuple(torch.broadcast_shapes(total.shape, one.shape))  # type: ignore[no-untyped-call]
            total = b.emit(
                "BinaryNg", [total, one], joint, torch.int64, {"function": "add"}, name=name
            )
    assert total is not None
    return total


# --- writes ------------------------------------------------------------------------------------


def _scatter(
    b: Builder, x: Value, index: Value, src: Value, dim: int, reduce: str | None, name: str
) -> Value:
    attrs = {"dim": dim, "reduce": reduce}
    return b.emit("Scatter", [x, index, src], x.shape, x.dtype, attrs, name=name)


_REDUCTIONS = {"sum": "add", "prod": "multiply", "amax": "amax", "amin": "amin"}


@lowers(
    aten.scatter.src, aten.scatter.value, aten.scatter_add.default, aten.scatter_reduce.two
)  # fmt: skip
def lower_scatter(b: Builder, node: Node) -> Value | None:
    """Elements written along a dimension by an index."""
    given = arguments(node)
    x, index = b.plain(b[node.args[0]]), b.plain(b[given["index"]])
    reduce = None
    if node.target is aten.scatter_add.default:
        reduce = "add"
    elif node.target is aten.scatter_reduce.two:
        reduce = _REDUCTIONS.get(given["reduce"])
        if reduce is None or not given["include_self"]:
            return None
    if not x.shape:
        return None
    src = given.get("src")
    if is_node(src):
        value = b.plain(b[src])
        if value.shape != index.shape:
            return None  # torch reads a corner of it
    else:
        value = b.emit("Full", [], index.shape, x.dtype, {"value": given["value"]}, name=node.name)
    return _scatter(b, x, index, value, int(given["dim"]) % len(x.shape), reduce, node.name)


@lowers(aten.index_put.default)
def lower_index_put(b: Builder, node: Node) -> Value | None:
    """Rows written by an index."""
    given = arguments(node)
    x = b.plain(b[node.args[0]])
    places = {d: b[i] for d, i in enumerate(given["indices"]) if i is not None}
    values = b.plain(b[given["values"]])
    if any(i.dtype is torch.bool for i in places.values()):
        return _masked_put(b, node, x, places, values, bool(given["accumulate"]))
    dims = list(places)
    order, adjacent = _front(len(x.shape), dims)
    rest = [x.shape[d] for d in order[len(dims) :]]
    ids = _linear(b, x, places, node.name)
    # Values as torch shapes them, then the index's dimensions in front, then rows.
    before, count = (min(dims) if adjacent else 0), len(ids.shape)
    values = expand(b, values, (*rest[:before], *ids.shape, *rest[before:]), node.name)
    last = before + count
    front = [*range(before, last), *range(before), *range(last, count + len(rest))]
    rows, width = volume(ids.shape), volume(rest)
    values = reshape(b, permute(b, values, front, node.name), (rows, width), node.name)
    index = expand(b, reshape(b, ids, (rows, 1), node.name), (rows, width), node.name)
    turned = permute(b, x, order, node.name)
    table = reshape(b, turned, (volume(x.shape) // max(1, width), width), node.name)
    out = _scatter(b, table, index, values, 0, "add" if given["accumulate"] else None, node.name)
    out = reshape(b, out, turned.shape, node.name)
    return permute(b, out, [order.index(d) for d in range(len(order))], node.name)


def _masked_put(
    b: Builder, node: Node, x: Value, places: dict[int, Value], values: Value, accumulate: bool
) -> Value | None:
    """One mask over the leading dimensions and values that are the same for all its places."""
    mask = b.plain(places.get(0, x))
    lead = len(mask.shape)
    same = volume(values.shape) == 1 or len(values.shape) <= len(x.shape) - lead
    if len(places) != 1 or 0 not in places or accumulate or not same:
        return None
    mask = reshape(b, mask, (*mask.shape, *(1,) * (len(x.shape) - lead)), node.name)
    if volume(values.shape) == 1:
        values = reshape(b, values, (1,) * len(x.shape), node.name)
    return where(b, node, mask, values, x)


@lowers(aten.masked_scatter.default)
def lower_masked_scatter(b: Builder, node: Node) -> Any:
    """How many values are taken depends on the mask: on the host."""
    return None


@lowers(aten.slice_scatter.default)
def lower_slice_scatter(b: Builder, node: Node) -> Value | None:
    """What is before, the new part, what is behind."""
    given = arguments(node)
    x, src = b.plain(b[node.args[0]]), b.plain(b[given["src"]])
    dim = int(given["dim"]) % len(x.shape)
    size = x.shape[dim]
    start, stop = bound(given["start"], 0, size), bound(given["end"], size, size)
    if int(given["step"]) != 1:
        return None
    if stop <= start:
        return x
    ends = [(0, start), (stop, size)]
    first, last = (slice_(b, x, dim, lo, hi, 1, node.name) if hi > lo else None for lo, hi in ends)
    parts = [b.on_device(p) for p in (first, src, last) if p is not None]
    if len(parts) == 1:
        return src
    return b.emit("Concat", parts, x.shape, x.dtype, {"dim": dim}, name=node.name)


@lowers(aten.copy.default)
def lower_copy(b: Builder, node: Node) -> Value:
    """A functional copy_: the source in the shape and dtype of the target."""
    shape, dtype = result(node)
    return expand(b, cast(b, b.plain(operand(b, node.args[1])), dtype, node.name), shape, node.name)


@lowers(aten.full_like.default)
def lower_full_like(b: Builder, node: Node) -> Value:
    """One value in a tensor's shape."""
    shape, dtype = result(node)
    return b.emit("Full", [], shape, dtype, {"value": node.args[1]}, name=node.name)
