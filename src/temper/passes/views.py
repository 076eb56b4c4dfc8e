"""Chains of view ops become one map, move past row-wise ops, and vanish where they cancel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.fused import concat_heads, gather_rows
from temper.graph.match import inherit
from temper.graph.node import Node, is_node
from temper.graph.views import SPLITS, read, source_of_view, write
from temper.options import Options
from temper.program.index_map import IndexMap, identity
from temper.program.index_moves import moves
from temper.program.row_table import Chart, RowTable, as_rows, joined
from temper.program.tensor import TILE

aten = torch.ops.aten

# Ops of one tensor whose elements do not meet.
_UNARY = frozenset({
    aten.gelu.default, aten.relu.default, aten.silu.default, aten.sigmoid.default,
    aten.tanh.default, aten.exp.default, aten.neg.default, aten.erf.default, aten.abs.default,
    aten.sqrt.default, aten.rsqrt.default, aten.log.default, aten.hardswish.default,
    aten.hardsigmoid.default, aten.leaky_relu.default, aten.elu.default, aten.mish.default,
    aten.softplus.default, aten._to_copy.default, aten.to.dtype, aten.pow.Tensor_Scalar,
    aten.clamp.default, aten.hardtanh.default, aten.relu6.default,
})  # fmt: skip
_BINARY = frozenset({
    aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.maximum.default,
    aten.minimum.default,
})  # fmt: skip
# Ops that treat every row of their first operand alike.
_SOFTMAX = frozenset({aten.softmax.int, aten._softmax.default})
_ROWS = _SOFTMAX | {aten.linear.default, aten.layer_norm.default, aten.rms_norm.default}
_HEADED = frozenset({aten.scaled_dot_product_attention.default})

# A chain with something in it that was moved or gathered.
_LONG = 1 << 30

Way = Literal["as it is", "moved", "concatenated", "turned"]


@dataclass(frozen=True)
class Base:
    """A value that maps are over: a node as it is, the same op on an operand in its own order,
    attention's result with its heads side by side, or an input with its first two axes turned."""

    node: Node
    way: Way = "as it is"


@dataclass(frozen=True)
class Shown:
    """What a node shows: a map of a base."""

    base: Base
    chart: Chart


@dataclass
class Analysis:
    """Every node as a map of a base; ``kept`` are nodes whose operands stay where they are."""

    graph: fx.Graph
    kept: set[Node] = field(default_factory=set)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)  # by placeholder
    turned: frozenset[Node] = frozenset()  # inputs that are better read batch first
    shown: dict[Node, Shown] = field(default_factory=dict)
    requests: list[Shown] = field(default_factory=list)
    # The operands, as they are mapped, of ops that were moved.
    behind: dict[Base, tuple[Shown, ...]] = field(default_factory=dict)
    through: set[Node] = field(default_factory=set)  # splits whose parts are all maps

    def run(self) -> None:
        for node in self.graph.nodes:
            if node in self.turned:
                rows, batch, width = node.meta["val"].shape
                back = identity((batch, rows, width)).permute((1, 0, 2))
                self.shown[node] = Shown(Base(node, "turned"), back)
                continue
            if self._splits(node):
                self.through.add(node)
                continue
            source = source_of_view(node)
            if source is not None and source in self.shown:
                chart = read(node, self.shown[source].chart)
                if chart is not None:
                    self.shown[node] = Shown(self.shown[source].base, chart)
                    continue
            gathered = self._gathered(node)
            if gathered is not None:
                self.shown[node] = gathered
                continue
            moved = self._moved(node) if node not in self.kept else None
            if moved is not None:
                self.shown[node] = moved
                continue
            self.requests += [self.shown[n] for n in node.all_input_nodes if n in self.shown]
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor) and value.numel() and not value.is_complex():
                self.shown[node] = Shown(Base(node), identity(value.shape))

    def _splits(self, node: Node) -> bool:
        """Whether a node only cuts a value into parts that have maps."""
        if node.target not in SPLITS or node.args[0] not in self.shown:
            return False
        chart = self.shown[node.args[0]].chart
        return all(
            source_of_view(part) is not None and read(part, chart) is not None
            for part in node.users
        )

    def _gathered(self, node: Node) -> Shown | None:
        """Rows of one base picked by a constant or joined, such as a cyclic shift."""
        if node.target is aten.cat.default:
            parts = [self.shown.get(part) for part in node.args[0]]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts) or len({part.base for part in known}) != 1:
                return None
            if all(part.chart.is_identity for part in known):
                return None
            dim = int(node.args[1]) if len(node.args) > 1 else int(node.kwargs.get("dim", 0))
            table = joined([part.chart for part in known], dim)
            return None if table is None or not table.is_bijection else Shown(known[0].base, table)
        if node.target is not aten.index_select.default:
            return None
        source, places = self.shown.get(node.args[0]), self.constants.get(node.args[2].name)
        rows = as_rows(source.chart) if source is not None and places is not None else None
        if source is None or places is None or rows is None:
            return None
        dim = int(node.args[1]) % len(rows.shape)
        table = rows.take(dim, places.numpy())
        return None if table is None else Shown(source.base, table)

    def _moved(self, node: Node) -> Shown | None:
        """The node's own op before the map of its operand instead of behind it."""
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
            return None
        shape = tuple(node.meta["val"].shape)
        if node.target in _HEADED:
            back = _heads_apart(shape)
            return None if back is None else Shown(Base(node, "concatenated"), back)
        first = self.shown.get(node.args[0]) if node.args and is_node(node.args[0]) else None
        if first is None or first.chart.is_identity or not first.chart.is_bijection:
            return None
        chart: Chart | None = None
        if node.target in _ROWS:
            chart = first.chart.of_rows(shape[-1]) if _along_rows(node) else None
        elif node.target in _UNARY or (node.target in _BINARY and self._joins(node, first)):
            chart = first.chart
        if chart is None or chart.shape != shape:
            return None
        base = Base(node, "moved")
        second = self.shown.get(node.args[1]) if node.target in _BINARY else None
        self.behind[base] = (first,) if second is None else (first, second)
        return Shown(base, chart)

    def _joins(self, node: Node, first: Shown) -> bool:
        """Whether a binary op's second operand stands in the first's order, or in any."""
        second = node.args[1]
        if not is_node(second):
            return True
        shown = self.shown.get(second)
        return shown is not None and _same_rows(first, shown)


def _heads_apart(shape: tuple[int, ...]) -> IndexMap | None:
    """The map from (B, S, heads * d) to attention's (B, heads, S, d)."""
    if len(shape) != 4:
        return None
    batch, heads, rows, width = shape
    apart = identity((batch, rows, heads * width)).reshape((batch, rows, heads, width))
    return None if apart is None else apart.permute((0, 2, 1, 3))


def _along_rows(node: Node) -> bool:
    """Whether only the last axis is worked along."""
    if node.target in _SOFTMAX:
        rank = node.meta["val"].dim()
        return bool(int(node.args[1]) % rank == rank - 1)
    return node.target is aten.linear.default or len(node.args[1]) == 1


def _same_rows(first: Shown, second: Shown) -> bool:
    """Whether both operands stand in one order, or the second is the same for every row."""
    if second.chart == first.chart:
        return True
    if not first.chart.shape or first.chart.of_rows(first.chart.shape[-1]) is None:
        return False
    return second.chart.is_identity and len(second.chart.shape) <= 1


def analyse(graph: fx.Graph, constants: dict[str, torch.Tensor]) -> Analysis:
    """Maps of all nodes, where only those ops moved past a map whose map then vanishes.

    A sequence that comes in front of its batch is turned once at the door where that saves more.
    """
    found = _useful(graph, constants)
    doors = frozenset(
        node for node in graph.nodes
        if node.op == "placeholder" and node.name not in constants and _is_sequence(node)
    )  # fmt: skip
    if doors and any(n.target in _HEADED for n in graph.nodes):
        whole = Analysis(graph, set(), constants, doors)
        whole.run()
        entry = sum(int(node.meta["val"].numel()) for node in doors)
        if entry + _volume(whole) < _volume(found) / 2:
            return whole
    return found


def _is_sequence(node: Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dim() != 3:
        return False
    return min(value.shape) > 1 and bool(node.users)


def _volume(found: Analysis) -> int:
    """Elements that the maps which ops ask for would move; heads of rows in order are free."""
    asked = {r for r in found.requests if not r.chart.is_reshape}
    return sum(
        torch.Size(r.chart.shape).numel() for r in asked
        if not (isinstance(r.chart, IndexMap) and len(r.chart.shape) > 2 and r.chart.keeps_rows)
    )  # fmt: skip


def _useful(graph: fx.Graph, constants: dict[str, torch.Tensor]) -> Analysis:
    kept: set[Node] = set()
    while True:
        found = Analysis(graph, kept, constants)
        found.run()
        good: set[Base] = set()
        left = [r.base for r in found.requests if r.chart.is_reshape]
        while left:
            base = left.pop()
            if base not in good:
                good.add(base)
                left += [operand.base for operand in found.behind.get(base, ())]
        tried = {s.base for s in found.shown.values() if s.base.way != "as it is"}
        lost = {b.node for b in tried - good}
        if not lost:
            return found
        kept |= lost


def cancel_views(captured: Captured, options: Options) -> int:
    """Each operand that is read through views is read through the fewest moves."""
    graph = captured.graph
    found = analyse(graph, captured.constants())
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
        if shown.base.node is node and shown.base.way in ("concatenated", "turned"):
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
        operands = [self.base(operand.base, node) for operand in self.found.behind[base]]
        args = (*operands, *node.args[len(operands) :])
        if node.target in _SOFTMAX:
            args = (args[0], -1, *args[2:])
        made = self.graph.call_function(node.target, args, dict(node.kwargs))
        made.meta.update({k: v for k, v in node.meta.items() if k != "val"})
        shape = self.found.shown[node].chart.source
        inherit(made, node, node.meta["val"].new_empty(shape))
        return made


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
