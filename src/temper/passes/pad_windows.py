"""Attention over windows that are no whole tiles, between two picks of rows.

Windows of 49 rows lie in two tiles each. Where one lookup cuts an image into windows and another
puts it together again, both can count 64 rows a window: nothing is cut off behind the first, the
second leaves the padding out, and everything between works on whole tiles. Attention hides the
padding by its mask.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch
from torch import fx

from temper.formats.arrays import Array
from temper.graph.captured import Captured
from temper.graph.fused import concat_heads, gather_rows, split_qkv_heads
from temper.graph.match import inherit
from temper.graph.node import Node, is_node
from temper.graph.views import source_of_view
from temper.options import Options
from temper.passes.view_analysis import Analysis
from temper.program.row_table import as_rows
from temper.program.tensor import TILE, round_up

aten = torch.ops.aten


@dataclass
class Windows:
    """From the rows that enter the first layer to the values that read the last one."""

    entry: Node  # (windows, rows, features), what the first layer reads
    first: Node  # the layer of queries, keys and values
    split: Node
    attention: Node
    join: Node
    last: Node  # the layer behind attention
    exits: dict[Node, Array] = field(default_factory=dict)  # values by the last layer's rows

    @property
    def inner(self) -> list[Node]:
        """Every node whose rows become more."""
        parts = [*self.split.users]
        return [self.first, self.split, *parts, self.attention, self.join, self.last]


def pad_windows(captured: Captured, options: Options) -> int:
    """Every attention over ragged windows whose rows are picked before and behind it."""
    graph = captured.graph
    splits = [n for n in graph.nodes if n.target is split_qkv_heads]
    if not splits:
        return 0
    found = Analysis(graph, set(graph.nodes))
    found.run()
    rows = _Rows(found, captured.constants())
    hits = 0
    for split in splits:
        windows = _windows(split, rows)
        picked = rows.of(windows.entry) if windows is not None else None
        if windows is not None and picked is not None:
            _write(captured, windows, *picked)
            hits += 1
    graph.eliminate_dead_code()
    return hits


@dataclass
class _Rows:
    """Values as rows picked out of others, through views and lookups."""

    found: Analysis
    constants: dict[str, torch.Tensor]

    def of(self, node: Node) -> tuple[Node, Array] | None:
        """The value that a node's rows come from, and which of its rows they are."""
        shown = self.found.shown.get(node)
        table = as_rows(shown.chart) if shown is not None else None
        if shown is None or table is None:
            return None
        base = shown.base.node
        if base.target is not gather_rows or base.args[1].name not in self.constants:
            return base, table.rows
        inner = self.of(base.args[0])
        if inner is None:
            return None
        places = self.constants[base.args[1].name].numpy().ravel()
        return inner[0], inner[1].ravel()[places[table.rows]]


def _only(node: Node, target: Any) -> Node | None:
    """The one reader of a node, if it is of that kind."""
    reader = next(iter(node.users), None)
    return (
        reader if len(node.users) == 1 and reader is not None and reader.target is target else None
    )


def _windows(split: Node, rows: _Rows) -> Windows | None:
    first = split.args[0]
    if first.target is not aten.linear.default or len(first.users) != 1:
        return None
    shape = first.meta["val"].shape
    if first.meta["val"].dtype is not torch.bfloat16 or shape[1] % TILE == 0:
        return None
    readers = {u for part in split.users for u in part.users}
    if any(p.target is not operator.getitem for p in split.users) or len(readers) != 1:
        return None
    attention = readers.pop()
    if attention.target is not aten.scaled_dot_product_attention.default:
        return None
    join = _only(attention, concat_heads)
    last = _only(join, aten.linear.default) if join is not None else None
    if join is None or last is None or not _maskable(attention, int(shape[1])):
        return None
    picked = rows.of(first.args[0])
    if picked is None or picked[0] is first.args[0]:
        return None
    made = Windows(first.args[0], first, split, attention, join, last)
    return made if _leave(made, rows) else None


def _maskable(attention: Node, rows: int) -> bool:
    mask, causal = _given(attention, 3, "attn_mask"), _given(attention, 5, "is_causal")
    # Without a mask, one for the padding alone would be read for nothing.
    if causal or mask is None or _given(attention, 4, "dropout_p"):
        return False
    value = mask.meta["val"]
    return bool(value.is_floating_point() and tuple(value.shape[-2:]) == (rows, rows))


def _given(node: Node, place: int, name: str) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name)


def _leave(windows: Windows, rows: _Rows) -> bool:
    """Collect what reads the last layer; False unless all of it picks rows."""
    for node, shown in rows.found.shown.items():
        if shown.base.node is not windows.last:
            continue
        readers = [u for u in node.users if source_of_view(u) is None]
        if not readers:
            continue
        looked = [u for u in readers if u.target is gather_rows and u.args[0] is node]
        ends = looked if len(looked) == len(readers) else [node]
        for end in ends:
            picked = rows.of(end)
            if picked is None or picked[0] is not windows.last:
                return False
            count = prod(windows.last.meta["val"].shape[:-1])
            if picked[1].size == count and (picked[1].ravel() == np.arange(count)).all():
                return False
            windows.exits[end] = picked[1]
    return bool(windows.exits)


def _write(captured: Captured, windows: Windows, source: Node, picked: Array) -> None:
    graph = captured.graph
    rows = int(windows.first.meta["val"].shape[1])
    whole = round_up(rows, TILE)
    with graph.inserting_before(windows.first):
        places = np.pad(picked, [(0, 0), (0, whole - rows)], mode="edge")
        entry = _gathered(captured, source, places, windows.entry)
    windows.first.update_arg(0, entry)
    _mask(captured, windows, rows, whole)
    for node in windows.inner:
        node.meta["val"] = _taller(node.meta["val"], rows, whole)
    for end, table in windows.exits.items():
        with graph.inserting_before(end):
            made = _picked(captured, windows.last, table // rows * whole + table % rows, end)
        end.replace_all_uses_with(made)


def _picked(captured: Captured, source: Node, table: Array, end: Node) -> Node:
    """The rows of a table, looked up in whole tiles, in the shape of the value they stand for."""
    graph, shape = captured.graph, tuple(end.meta["val"].shape)
    if table.shape[-1] % TILE == 0:
        return _gathered(captured, source, table, end)
    flat = table.reshape(1, -1)
    count = flat.shape[1]
    filled = np.pad(flat, [(0, 0), (0, -count % TILE)], mode="edge")
    made = _gathered(captured, source, filled, end)
    if filled.shape[1] != count:
        made = graph.call_function(aten.slice.Tensor, (made, 1, 0, count))
        inherit(made, end, end.meta["val"].new_empty(1, count, shape[-1]))
    if tuple(made.meta["val"].shape) != shape:
        made = graph.call_function(aten.reshape.default, (made, list(shape)))
        inherit(made, end, end.meta["val"])
    return made


def _gathered(captured: Captured, source: Node, places: Array, like: Node) -> Node:
    constant = captured.constant(torch.from_numpy(np.ascontiguousarray(places)), like.name)
    made = captured.graph.call_function(gather_rows, (source, constant))
    width = source.meta["val"].shape[-1]
    inherit(made, like, source.meta["val"].new_empty(*places.shape, width))
    return made


def _taller(value: Any, rows: int, whole: int) -> Any:
    """The same value with more rows in its last axis but one."""
    if isinstance(value, (tuple, list)):
        return tuple(_taller(v, rows, whole) for v in value)
    return value.new_empty(*value.shape[:-2], whole, value.shape[-1])


def _mask(captured: Captured, windows: Windows, rows: int, whole: int) -> None:
    """Keys of the padding are hidden; its queries see what they like, since nobody reads them."""
    node, graph = windows.attention, captured.graph
    with graph.inserting_before(node):
        made = _padded(graph, _given(node, 3, "attn_mask"), [0, whole - rows], -torch.inf)
        made = _padded(graph, made, [0, 0, 0, whole - rows], 0.0)
    if len(node.args) > 3:
        node.update_arg(3, made)
    else:
        node.update_kwarg("attn_mask", made)


def _padded(graph: fx.Graph, node: Node, pads: list[int], value: float) -> Node:
    made = graph.call_function(aten.constant_pad_nd.default, (node, pads, value))
    assert is_node(node)
    inherit(made, node, torch.nn.functional.pad(node.meta["val"], pads))
    return made
