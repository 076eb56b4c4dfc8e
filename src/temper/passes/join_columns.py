"""Rows of one value side by side, such as the four pixels that a patch merging joins.

``cat((x[:, 0::2, 0::2], x[:, 1::2, 0::2], ...), -1)`` takes a strided slice for each part, and
every one is rows picked out of tiles. All parts are looked up at once, each in whole tiles, and put
side by side as heads are.
"""

from __future__ import annotations

import numpy as np
import torch

from temper.graph.captured import Captured
from temper.graph.fused import concat_heads, gather_rows
from temper.graph.match import inherit
from temper.graph.node import Node
from temper.options import Options
from temper.passes.view_analysis import Analysis, Base
from temper.program.row_table import RowTable, as_rows
from temper.program.tensor import TILE, round_up

aten = torch.ops.aten


def join_columns(captured: Captured, options: Options) -> int:
    """Every concatenation along the last axis whose parts are rows of one value."""
    graph = captured.graph
    if not any(node.target is aten.cat.default for node in graph.nodes):
        return 0
    found = Analysis(graph, set(graph.nodes))
    found.run()
    hits = 0
    for node in list(graph.nodes):
        parts = _parts(node, found)
        if parts is not None:
            base, tables = parts
            node.replace_all_uses_with(_written(captured, node, base, tables))
            hits += 1
    graph.eliminate_dead_code()
    return hits


def _parts(node: Node, found: Analysis) -> tuple[Node, list[RowTable]] | None:
    """The value whose rows are joined, and the rows of each part; None for any other op."""
    if node.target is not aten.cat.default or node.meta["val"].dtype is not torch.bfloat16:
        return None
    dim = int(node.args[1]) if len(node.args) > 1 else int(node.kwargs.get("dim", 0))
    shown = [found.shown.get(part) for part in node.args[0]]
    known = [s for s in shown if s is not None]
    if dim % node.meta["val"].dim() != node.meta["val"].dim() - 1 or len(known) < len(shown):
        return None
    base = known[0].base
    if base != Base(base.node) or any(s.base != base for s in known) or len(known) < 2:
        return None
    if any(s.chart.is_reshape for s in known) or known[0].chart.source[-1] % TILE:
        return None
    tables = [table for s in known if (table := as_rows(s.chart)) is not None]
    return (base.node, tables) if len(tables) == len(known) else None


def _written(captured: Captured, node: Node, base: Node, tables: list[RowTable]) -> Node:
    graph = captured.graph
    count = tables[0].rows.size
    whole = round_up(count, TILE)
    places = np.stack([np.pad(t.rows.ravel(), (0, whole - count), mode="edge") for t in tables])
    value = node.meta["val"]
    width = tables[0].width
    with graph.inserting_before(node):
        rows = graph.call_function(
            gather_rows, (base, captured.constant(torch.from_numpy(places), node.name))
        )
        inherit(rows, node, value.new_empty(len(tables), whole, width))
        apart = graph.call_function(aten.unsqueeze.default, (rows, 0))
        inherit(apart, node, value.new_empty(1, len(tables), whole, width))
        made = graph.call_function(concat_heads, (apart,))
        inherit(made, node, value.new_empty(1, whole, len(tables) * width))
        if whole != count:
            made = graph.call_function(aten.slice.Tensor, (made, 1, 0, count))
            inherit(made, node, value.new_empty(1, count, len(tables) * width))
        made = graph.call_function(aten.reshape.default, (made, list(value.shape)))
        inherit(made, node, value)
    return made
