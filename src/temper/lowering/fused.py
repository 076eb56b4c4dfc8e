"""Lowering of the fused ops that the passes put into the graph: heads, rotary embedding."""

from __future__ import annotations

import torch

from temper.graph.fused import (
    concat_heads,
    gather_rows,
    lookup_apart,
    lookup_tables,
    rotary_embedding,
    split_qkv_heads,
    trim_columns,
)
from temper.graph.node import Node
from temper.lowering.builder import Builder, Value, volume
from temper.lowering.data import slice_
from temper.lowering.elementwise import result
from temper.lowering.index import look_up
from temper.lowering.registry import lowers
from temper.weights.op import ensure_op_defined

ensure_op_defined()


@lowers(rotary_embedding)
def lower_rotary(b: Builder, node: Node) -> Value:
    """Rotary embedding as one op."""
    shape, dtype = result(node)
    inputs = [b.plain(b[a]) for a in node.args]
    return b.emit("RotaryEmbedding", inputs, shape, dtype, name=node.name)


@lowers(gather_rows)
def lower_gather_rows(b: Builder, node: Node) -> Value:
    """An embedding whose table is the value: rows in memory, tiles as the result."""
    shape, dtype = result(node)
    rows = b.in_layout(b.on_device(b.plain(b[node.args[0]])), "row_major")
    flat = (volume(rows.shape[:-1]), rows.shape[-1])
    table = b.emit("Reshape", [rows], flat, dtype, name=rows.name, layout="row_major")
    places = b.on_device(b.in_layout(b.on_device(b[node.args[1]]), "row_major"), "uint32")
    return b.emit("Embeddings", [places, table], shape, dtype, name=node.name)


@lowers(lookup_tables)
def lower_lookup_tables(b: Builder, node: Node) -> Value:
    """Each column's ids moved to its table, and one lookup for all."""
    shape, dtype = result(node)
    ids, limits = b.plain(b[node.args[0]]), list(node.args[2])
    wide = (ids.shape[0], len(limits) - 1)
    short = wide[1] - ids.shape[1]
    pads = {"pads": [[0, 0], [0, short]], "value": 0.0}
    ids = b.emit("Pad", [ids], wide, ids.dtype, pads, name=ids.name) if short else ids
    firsts = b.constant(torch.tensor([limits[:-1]]), "firsts")
    attrs = {"function": "add"}
    places = b.emit("BinaryNg", [ids, firsts], wide, ids.dtype, attrs, name=ids.name)
    rows = b.in_layout(places, "row_major")
    table = b.in_layout(b.on_device(b[node.args[1]]), "row_major")
    return look_up(b, rows, table, shape, dtype, {"limits": limits}, name=node.name)


@lowers(lookup_apart)
def lower_lookup_apart(b: Builder, node: Node) -> Value:
    """Each column's ids moved to its table, turned as rows, and one lookup for all."""
    shape, dtype = result(node)
    places, limits = b.plain(b[node.args[0]]), list(node.args[2])
    if limits:
        firsts = b.constant(torch.tensor([limits[:-1]]), "firsts")
        sized, name = (places.shape, places.dtype), places.name
        places = b.emit("BinaryNg", [places, firsts], *sized, {"function": "add"}, name=name)
    rows = b.in_layout(places, "row_major")
    turned = b.emit(
        "Transpose", [rows], shape[:2], places.dtype, {"dims": [-2, -1]}, name=places.name,
        layout="row_major",
    )  # fmt: skip
    table = b.in_layout(b.on_device(b[node.args[1]]), "row_major")
    bounds = {"limits": limits, "limits_axis": 0}
    return look_up(b, turned, table, shape, dtype, bounds, name=node.name)


@lowers(trim_columns)
def lower_trim_columns(b: Builder, node: Node) -> Value:
    """A slice of the last axis."""
    x = b.plain(b[node.args[0]])
    return slice_(b, x, len(x.shape) - 1, 0, int(node.args[1]), 1, node.name)


@lowers(concat_heads)
def lower_concat_heads(b: Builder, node: Node) -> Value:
    """Heads back into rows."""
    shape, dtype = result(node)
    return b.emit("ConcatHeads", [b.plain(b[node.args[0]])], shape, dtype, name=node.name)


@lowers(split_qkv_heads)
def lower_split_heads(b: Builder, node: Node) -> tuple[Value, ...]:
    """Rows into queries, keys and values by heads."""
    x = b.plain(b[node.args[0]])
    return b.emit_many(
        "CreateQkvHeads",
        [x],
        [(v.shape, v.dtype) for v in node.meta["val"]],
        {"heads": node.args[1], "kv_heads": node.args[2]},
        name=node.name,
    )


@lowers(torch.ops.tt.weight_dtype_override.default)
def lower_override(b: Builder, node: Node) -> Value:
    """A weight's format mark: the weight itself."""
    return b[node.args[0]]
