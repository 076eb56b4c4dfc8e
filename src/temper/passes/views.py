"""Chains of view ops become one map, move past row-wise ops, and vanish where they cancel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.fused import concat_heads, gather_rows
from temper.graph.match import inherit
from temper.graph.node import Node
from temper.graph.views import source_of_view, write
from temper.options import Options
from temper.passes.view_analysis import REDUCTIONS, SOFTMAX, Analysis, Base, Shown, analyse
from temper.program.index_moves import moves
from temper.program.row_table import RowTable
from temper.program.tensor import TILE

aten = torch.ops.aten

# A chain with something in it that was moved or gathered.
_LONG = 1 << 30
# Bases that are made out of their own node.
_OTHERS = ("concatenated", "turned", "channels last")


def cancel_views(captured: Captured, options: Options) -> int:
    """Each operand that is read through views is read through the fewest moves."""
    graph = captured.graph
    found = analyse(graph, captured.constants(), captured.fixed())
    writer = Writer(captured, found)
    hits = 0
    for node in list(graph.nodes):
        shown = found.shown.get(node)
        if node in found.through or (
            shown is not None and (shown.base.node is not node or shown.base.way == "moved")
        ):
            continue
        for source in list(node.all_input_nodes):
            if source not in found.shown:
                continue
            better = writer.value(source, node)
            if better is not source:
                node.replace_input_with(source, better)
                hits += 1
    graph.eliminate_dead_code()
    return hits


@dataclass
class Writer:
    """Writes the values of bases and maps into the graph, each once."""

    captured: Captured
    found: Analysis
    made: dict[Any, Node] = field(default_factory=dict)

    @property
    def graph(self) -> fx.Graph:
        return self.captured.graph

    def value(self, node: Node, reader: Node) -> Node:
        """What ``node`` shows, as it is best computed, in front of ``reader``."""
        shown = self.found.shown[node]
        if shown.base == Base(node):
            return node
        if shown.base.node is node and shown.base.way in _OTHERS:
            return node
        if shown in self.made:
            return self.made[shown]
        chain = _chain(node, self.found)
        if isinstance(shown.chart, RowTable):
            made = self._rows(shown, reader, node)
        else:
            steps = moves(shown.chart)
            assert steps is not None  # maps without steps are never shown
            if shown.base.way == "as it is" and len(steps) >= chain:
                return node
            with self.graph.inserting_before(reader):
                made = write(self.graph, self.base(shown.base, reader), steps, node)
        self.made[shown] = made
        return made

    def _rows(self, shown: Shown, reader: Node, like: Node) -> Node:
        """A table of rows: a plain reshape, or rows gathered by a constant."""
        table = shown.chart
        assert isinstance(table, RowTable)
        with self.graph.inserting_before(reader):
            base = self.base(shown.base, reader)
            if table.is_reshape:
                made = self.graph.call_function(aten.reshape.default, (base, list(table.shape)))
            else:
                # Rows that fill tiles come out of the lookup as tiles.
                full = table.filled(TILE)
                places = self.captured.constant(torch.from_numpy(full.rows), like.name)
                made = self.graph.call_function(gather_rows, (base, places))
                if full is not table:
                    inherit(made, like, base.meta["val"].new_empty(full.shape))
                    cut = (full.rows.ndim - 1, 0, table.rows.shape[-1])
                    made = self.graph.call_function(aten.slice.Tensor, (made, *cut))
            inherit(made, like, base.meta["val"].new_empty(table.shape))
        return made

    def base(self, base: Base, reader: Node) -> Node:
        if base.way == "as it is":
            return base.node
        if base not in self.made:
            node = base.node
            # Right behind its operands, so that every reader finds it made.
            first = next(n for n in self.graph.nodes if n.op != "placeholder")
            with self.graph.inserting_before(first if base.way == "turned" else node):
                self.made[base] = self._written(base)
        return self.made[base]

    def _written(self, base: Base) -> Node:
        node = base.node
        if base.way == "turned":
            made = self.graph.call_function(aten.transpose.int, (node, 0, 1))
            inherit(made, node, node.meta["val"].transpose(0, 1))
            return made
        if base.way == "concatenated":
            with self.graph.inserting_after(node):
                made = self.graph.call_function(concat_heads, (node,))
            inherit(made, node, concat_heads(node.meta["val"]))
            return made
        if base.way == "channels last":
            batch, rows, channels = self.found.shown[node].chart.source
            with self.graph.inserting_after(node):
                last = self.graph.call_function(aten.permute.default, (node, [0, 2, 3, 1]))
            inherit(last, node, node.meta["val"].permute(0, 2, 3, 1))
            with self.graph.inserting_after(last):
                whole = [batch, rows, channels]
                made = self.graph.call_function(aten.reshape.default, (last, whole))
            inherit(made, node, last.meta["val"].reshape(whole))
            return made
        operands = [self._operand(operand, node) for operand in self.found.behind[base]]
        args = (*operands, *node.args[len(operands) :])
        if node.target in REDUCTIONS:
            args = (args[0], self.found.dims[base], False, *args[3:])
        if node.target in SOFTMAX:
            args = (args[0], -1, *args[2:])
        rest = {k: v for k, v in node.kwargs.items() if k not in ("dim", "keepdim")}
        made = self.graph.call_function(node.target, args, rest)
        made.meta.update({k: v for k, v in node.meta.items() if k != "val"})
        shape = self.found.shown[node].chart.source
        inherit(made, node, node.meta["val"].new_empty(shape))
        return made

    def _operand(self, shown: Shown, reader: Node) -> Node:
        """What an op that was moved reads: a base, or a small map of one."""
        base = self.base(shown.base, reader)
        if shown.chart.is_identity:
            return base
        assert not isinstance(shown.chart, RowTable)
        steps = moves(shown.chart)
        assert steps is not None  # maps without steps are never shown
        return write(self.graph, base, steps, reader)


def _chain(node: Node, found: Analysis) -> int:
    """View ops between a node and the base it shows."""
    count = 0
    base = found.shown[node].base.node
    while node is not base:
        source = source_of_view(node)
        if source is None:
            return _LONG
        count += 1
        node = source
    return count
