"""Every node of a graph as a map of a base, and which ops may change places with their maps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import fx

from temper.graph.node import Node, is_node
from temper.graph.views import SPLITS, read, source_of_view
from temper.program.index_map import IndexMap, identity, joined_maps
from temper.program.index_moves import moves
from temper.program.row_table import Chart, as_rows, joined

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
SOFTMAX = frozenset({aten.softmax.int, aten._softmax.default})
_ROWS = SOFTMAX | {aten.linear.default, aten.layer_norm.default, aten.rms_norm.default}
_HEADED = frozenset({aten.scaled_dot_product_attention.default})
# Ops over some axes, which may be counted in front of a map as well as behind it.
REDUCTIONS = frozenset({
    aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default,
})  # fmt: skip
_IMAGES = frozenset({aten.conv2d.default, aten.conv2d.padding})
_JOINS = frozenset({aten.cat.default, aten.stack.default})
# An operand that is this much smaller than the result is brought into another order for it.
_SMALL = 2

Way = Literal["as it is", "moved", "concatenated", "turned", "channels last"]


@dataclass(frozen=True)
class Base:
    """A value that maps are over: a node as it is, the same op on an operand in its own order,
    attention's result with its heads side by side, an input with its first two axes turned, or a
    convolution's result in the rows that it is written in, (N, H * W, C)."""

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
    fixed: frozenset[Node] = frozenset()  # hang on weights alone: any order of them is free
    rows: bool = False  # whether convolutions' results count as rows of channels
    shown: dict[Node, Shown] = field(default_factory=dict)
    requests: list[Shown] = field(default_factory=list)
    # The operands of ops that were moved, as they read them then.
    behind: dict[Base, tuple[Shown, ...]] = field(default_factory=dict)
    dims: dict[Base, list[int]] = field(default_factory=dict)  # of reductions that were moved
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
            if self.rows and node.target in _IMAGES and node.meta["val"].dim() == 4:
                self.requests += [self.shown[n] for n in node.all_input_nodes if n in self.shown]
                self.shown[node] = Shown(Base(node, "channels last"), _channels_apart(node))
                continue
            moved = self._moved(node) if node not in self.kept else None
            if moved is not None:
                self.shown[node] = moved
                if node.target not in _HEADED:
                    continue
            self.requests += [self.shown[n] for n in node.all_input_nodes if n in self.shown]
            value = node.meta.get("val") if moved is None else None
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
        if node.target in _JOINS:
            return self._joined(node)
        if node.target is not aten.index_select.default:
            return None
        source, places = self.shown.get(node.args[0]), self.constants.get(node.args[2].name)
        rows = as_rows(source.chart) if source is not None and places is not None else None
        if source is None or places is None or rows is None:
            return None
        dim = int(node.args[1]) % len(rows.shape)
        table = rows.take(dim, places.numpy())
        return None if table is None else Shown(source.base, table)

    def _joined(self, node: Node) -> Shown | None:
        """Maps of one base behind one another: one map, or a table of its rows."""
        parts = [self.shown.get(part) for part in node.args[0]]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) or len({part.base for part in known}) != 1:
            return None
        dim = int(node.args[1]) if len(node.args) > 1 else int(node.kwargs.get("dim", 0))
        dim %= node.meta["val"].dim()
        charts: list[Chart | None] = [part.chart for part in known]
        if node.target is aten.stack.default:
            charts = [c.reshape((*c.shape[:dim], 1, *c.shape[dim:])) for c in charts if c]
        base, given = known[0].base, [c for c in charts if c is not None]
        if len(given) < len(charts) or all(c == given[0] for c in given):
            return None
        strided = [c for c in given if isinstance(c, IndexMap)]
        if len(strided) == len(given):
            whole = joined_maps(strided, dim)
            if whole is not None and moves(whole) is not None and _goes_forward(whole):
                return Shown(base, whole)
        if node.target is aten.stack.default:
            return None
        table = joined(given, dim)
        return None if table is None or not table.is_bijection else Shown(base, table)

    def _moved(self, node: Node) -> Shown | None:
        """The node's own op before the map of its operand instead of behind it."""
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
            return None
        shape = tuple(node.meta["val"].shape)
        if node.target in _HEADED:
            back = _heads_apart(shape)
            return None if back is None else Shown(Base(node, "concatenated"), back)
        if node.target in _BINARY and all(map(is_node, node.args[:2])):
            return self._moved_pair(node, shape)
        first = self._order(node, 0)
        if first is None:
            return None
        chart: Chart | None = None
        if node.target in REDUCTIONS:
            return self._moved_reduction(node, first)
        if node.target in _ROWS:
            chart = first.chart.of_rows(shape[-1]) if _along_rows(node) else None
        elif node.target in _UNARY or node.target in _BINARY:
            chart = first.chart
        return self._before(node, chart, first)

    def _order(self, node: Node, place: int) -> Shown | None:
        """An operand that shows all of its base in another order."""
        if len(node.args) <= place or not is_node(node.args[place]):
            return None
        shown = self.shown.get(node.args[place])
        if shown is None or shown.chart.is_identity or not shown.chart.is_bijection:
            return None
        return shown

    def _before(self, node: Node, chart: Chart | None, *operands: Shown) -> Shown | None:
        """The op on its operands' bases, behind it the map."""
        if chart is None or chart.shape != tuple(node.meta["val"].shape):
            return None
        base = Base(node, "moved")
        self.behind[base] = tuple(
            Shown(o.base, identity(o.chart.source)) if o.chart == operands[0].chart else o
            for o in operands
        )
        return Shown(base, chart)

    def _moved_pair(self, node: Node, shape: tuple[int, ...]) -> Shown | None:
        """Two operands in one order; one may be the same for every row, small or of weights."""
        for place in (0, 1):
            main, other = self._order(node, place), self.shown.get(node.args[1 - place])
            if main is None or other is None or main.chart.shape != shape:
                continue
            if main.chart == other.chart:
                return self._before(node, main.chart, main, other)
            base = Base(node, "moved")
            follows: Shown | None = other if place == 0 and _same_rows(main, other) else None
            small = other.chart.shape != shape and _count(other) * _SMALL <= _count(main)
            if follows is None and (small or node.args[1 - place] in self.fixed):
                follows = _following(main.chart, other)
            if follows is None:
                continue
            own = Shown(main.base, identity(main.chart.source))
            self.behind[base] = (own, follows) if place == 0 else (follows, own)
            return Shown(base, main.chart)
        return None

    def _moved_reduction(self, node: Node, first: Shown) -> Shown | None:
        """The same axes of the base, where they are whole ones."""
        rank = len(first.chart.shape)
        given = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        if not given or not isinstance(first.chart, IndexMap):
            return None
        dims = {int(d) % rank for d in (given if isinstance(given, (list, tuple)) else [given])}
        keep = bool(node.args[2] if len(node.args) > 2 else node.kwargs.get("keepdim", False))
        over = first.chart.without(dims, keep=keep)
        if over is None or not over[0]:  # of single elements; no axes would mean all of them
            return None
        made = self._before(node, over[1], first)
        if made is None:
            return None
        self.dims[made.base] = list(over[0])
        self.behind[made.base] = (Shown(first.base, identity(first.chart.source)),)
        return made


def _goes_forward(chart: IndexMap) -> bool:
    """Whether nothing is repeated or turned round."""
    return all(stride > 0 for _, stride in chart.factors)


def _count(shown: Shown) -> int:
    return torch.Size(shown.chart.shape).numel()


def _following(chart: Chart, other: Shown) -> Shown | None:
    """A broadcast operand of a map's result as an operand of the map's source."""
    back = chart.inverse() if isinstance(chart, IndexMap) else None
    if back is None or not isinstance(other.chart, IndexMap):
        return None
    spread = other.chart.expand(chart.shape).then(back)
    if spread is None:
        return None
    axes = []
    for axis in spread.axes:
        repeated = [stride == 0 for _, stride in axis]
        if any(repeated) and not all(repeated):
            return None
        axes.append(() if any(repeated) else axis)
    single = IndexMap(spread.source, tuple(axes), spread.offset)
    return None if moves(single) is None else Shown(other.base, single)


def _heads_apart(shape: tuple[int, ...]) -> IndexMap | None:
    """The map from (B, S, heads * d) to attention's (B, heads, S, d)."""
    if len(shape) != 4:
        return None
    batch, heads, rows, width = shape
    apart = identity((batch, rows, heads * width)).reshape((batch, rows, heads, width))
    return None if apart is None else apart.permute((0, 2, 1, 3))


def _channels_apart(node: Node) -> IndexMap:
    """The map from (N, H * W, C) to a convolution's (N, C, H, W)."""
    batch, channels, height, width = node.meta["val"].shape
    apart = identity((batch, height * width, channels)).reshape((batch, height, width, channels))
    assert apart is not None
    return apart.permute((0, 3, 1, 2))


def _along_rows(node: Node) -> bool:
    """Whether only the last axis is worked along."""
    if node.target in SOFTMAX:
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


def analyse(
    graph: fx.Graph, constants: dict[str, torch.Tensor], fixed: frozenset[Node] = frozenset()
) -> Analysis:
    """Maps of all nodes, where only those ops moved past a map whose map then vanishes.

    Sequences in front of their batch, given so or made so out of images, are taken batch first
    all the way where that moves less than half as much.
    """
    found = _useful(graph, constants, fixed)
    if not any(n.target in _HEADED for n in graph.nodes):
        return found
    doors = frozenset(
        node for node in graph.nodes
        if node.op == "placeholder" and node not in fixed and _is_sequence(node)
    )  # fmt: skip
    least, limit = found, _volume(found) / 2
    for turned in dict.fromkeys((doors, frozenset[Node]())):
        whole = Analysis(graph, set(), constants, turned, fixed, rows=True)
        whole.run()
        entry = sum(int(node.meta["val"].numel()) for node in turned)
        if entry + _volume(whole) < limit:
            least, limit = whole, entry + _volume(whole)
    return least


def _is_sequence(node: Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dim() != 3:
        return False
    return min(value.shape) > 1 and bool(node.users)


def _volume(found: Analysis) -> int:
    """Elements that the maps which ops ask for would move; heads of rows in order are free, and
    so are images out of rows of channels, which is how they are stored."""
    asked = {r for r in found.requests if not r.chart.is_reshape and not _is_image(r.chart)}
    return sum(
        torch.Size(r.chart.shape).numel() for r in asked
        if not (isinstance(r.chart, IndexMap) and len(r.chart.shape) > 2 and r.chart.keeps_rows)
    )  # fmt: skip


def _is_image(chart: Chart) -> bool:
    """Whether channels that come last are shown in front of height and width."""
    if not isinstance(chart, IndexMap) or len(chart.shape) != 4:
        return False
    batch, channels, height, width = chart.shape
    rows = identity((batch, height, width, channels)).permute((0, 3, 1, 2))
    return (chart.axes, chart.offset) == (rows.axes, rows.offset)


def _useful(
    graph: fx.Graph, constants: dict[str, torch.Tensor], fixed: frozenset[Node]
) -> Analysis:
    kept: set[Node] = set()
    while True:
        found = Analysis(graph, kept, constants, fixed=fixed)
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
