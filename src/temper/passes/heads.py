"""Queries, keys and values split into heads, in any spelling: one matmul and the heads op.

A value of (B, heads, S, d) that is a map of a linear layer's result reads rows of the layer's
input and columns of its output. The columns' order goes into the weight, whose rows are put in
that order once; the rows' order, if it is not the natural one, is that of the layer's input.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.fused import split_qkv_heads
from temper.graph.match import add_call, inherit
from temper.graph.node import Node
from temper.graph.views import source_of_view, write
from temper.options import Options
from temper.passes.pad_heads import between_weights, padded, widen
from temper.passes.view_analysis import Analysis, Shown
from temper.program.index_map import Factor, IndexMap
from temper.program.index_moves import moves
from temper.program.tensor import TILE, round_up

aten = torch.ops.aten


@dataclass(frozen=True)
class Heads:
    """One tensor of heads: where its rows and its columns come from."""

    node: Node  # (B, heads, S, d), or (B * heads, S, d)
    base: Node  # (..., rows, columns)
    rows: IndexMap  # (B, S) of the base's rows
    columns: IndexMap  # (heads, d) of the base's columns

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(B, heads, S, d)."""
        (batch, rows), (heads, width) = self.rows.shape, self.columns.shape
        return batch, heads, rows, width


def fuse_heads(captured: Captured, options: Options) -> int:
    """Every group of heads of one input, three at a time where they are query, key and value."""
    graph = captured.graph
    found = Analysis(graph, set(graph.nodes))
    found.run()
    if _turn_last(graph, found):
        found = Analysis(graph, set(graph.nodes))
        found.run()
    groups: dict[Any, list[Heads]] = defaultdict(list)
    for node, shown in found.shown.items():
        heads = heads_of(node, shown)
        if heads is not None and _read_by_others(node, found):
            groups[key_of(heads)].append(heads)
    hits = 0
    for members in groups.values():
        if not read_alone(members, found):
            continue
        for part in _threes(members):
            hits += _split(graph, part)
    graph.eliminate_dead_code()
    return hits


def _turn_last(graph: fx.Graph, found: Analysis) -> int:
    """Heads that are read with their last axes turned, as keys are: heads first, then the turn."""
    plain: dict[Shown, Node] = {}
    for node, shown in found.shown.items():
        plain.setdefault(shown, node)
    hits = 0
    for node, shown in list(found.shown.items()):
        chart = shown.chart
        if not isinstance(chart, IndexMap) or len(chart.shape) not in (3, 4):
            continue
        upright = Shown(shown.base, chart.permute((*range(len(chart.shape) - 2), -1, -2)))
        if shown.base.node is node or heads_of(node, shown) is not None:
            continue
        heads = heads_of(node, upright) if _read_by_others(node, found) else None
        steps = moves(upright.chart) if isinstance(upright.chart, IndexMap) else None
        if heads is None or heads.sizes[1] < 2 or heads.sizes[3] % TILE or steps is None:
            continue
        if heads.base.target is not aten.linear.default:
            continue
        with graph.inserting_before(node):
            before = plain.get(upright)
            if before is None or not before < node:
                before = write(graph, heads.base, steps, node)
            turned = add_call(graph, aten.transpose.int, node, before, -2, -1)
        node.replace_all_uses_with(turned)
        hits += 1
    return hits


def heads_of(node: Node, shown: Shown) -> Heads | None:
    """The node as heads of a base's rows and columns, if that is what it shows."""
    chart, width = shown.chart, shown.chart.source[-1] if shown.chart.source else 1
    shape = chart.shape
    if len(shape) not in (3, 4) or not isinstance(chart, IndexMap):
        return None
    lead = [factor for axis in chart.axes[:-2] for factor in axis]
    batch, heads = list(chart.axes[0]), list(chart.axes[1])
    if len(shape) == 3:  # one axis for both
        batch, heads = ([f for f in lead if (f[1] % width > 0) == own] for own in (False, True))
    rows, columns = list(chart.axes[-2]), list(chart.axes[-1])
    if [*batch, *heads] != lead or any(s <= 0 for _, s in (*lead, *rows, *columns)):
        return None
    if any(s % width for _, s in batch) or any(s % width == 0 for _, s in heads):
        return None
    if any(s % width for _, s in rows) or any(s % width == 0 for _, s in columns):
        return None
    first = chart.offset % width
    if first + sum((n - 1) * s for n, s in (*heads, *columns)) >= width:
        return None
    count = prod(chart.source) // width
    above = IndexMap((count,), (_rowwise(batch, width), _rowwise(rows, width)),
                     chart.offset // width)  # fmt: skip
    within = IndexMap((width,), (tuple(heads), tuple(columns)), first)
    if len(shape) == 4 and (above.shape[0], within.shape[0]) != shape[:2]:
        return None
    if moves(above) is None or moves(within) is None:
        return None
    return Heads(node, shown.base.node, above, within)


def _rowwise(factors: Sequence[Factor], width: int) -> tuple[Factor, ...]:
    return tuple((n, s // width) for n, s in factors)


def _read_by_others(node: Node, found: Analysis) -> bool:
    """Whether anything but a further view reads the node."""
    return any(
        u not in found.through and (u not in found.shown or found.shown[u].base.node is u)
        for u in node.users
    )


def key_of(heads: Heads) -> Any:
    """What heads must have in common to be split by one op."""
    base = heads.base
    if base.target is not aten.linear.default:
        return base, heads.rows, heads.sizes[3]
    return base.args[0], heads.rows, heads.sizes[3], base.meta["val"].dtype, _signature(base)


def _signature(linear: Node) -> tuple[Any, ...]:
    bias = len(linear.args) > 2 and linear.args[2] is not None
    return bias, (linear.meta.get("weight_format") or {}).get("format")


def read_alone(members: Sequence[Heads], found: Analysis) -> bool:
    """Whether nobody else reads the layers, which would then be computed twice."""
    ours = {h.node for h in members}
    bases = {h.base for h in members}
    return not any(
        shown.base.node in bases and not _comes_from(node, ours) and _read_by_others(node, found)
        for node, shown in found.shown.items()
    )


def _comes_from(node: Node, ours: set[Node]) -> bool:
    """Whether a node is one of ours, or a view of one."""
    while node is not None:
        if node in ours:
            return True
        node = source_of_view(node)
    return False


def _threes(members: list[Heads]) -> list[list[Heads]]:
    """Query, key and value together; others one by one."""
    if len(members) == 3:
        counts = [h.sizes[1] for h in members]
        odd = next((i for i in range(3) if counts.count(counts[i]) == 1), 0)
        rest = [h for i, h in enumerate(members) if i != odd]
        if rest[0].sizes[1] == rest[1].sizes[1]:
            return [[members[odd], *rest]]
    return [[h] for h in members if h.sizes[1] > 1]


def _split(graph: fx.Graph, part: Sequence[Heads]) -> int:
    whole = part[0].sizes[3] % TILE == 0
    between = None if whole else between_weights([h.node for h in part])
    if not whole and (between is None or part[0].base.target is not aten.linear.default):
        return 0
    wide = projected(graph, part)
    if wide is None:
        return 0
    heads, width = part[0].sizes[1], part[0].sizes[3]
    kv_heads = part[1].sizes[1] if len(part) == 3 else 1
    with graph.inserting_after(wide):
        fused = graph.call_function(split_qkv_heads, (wide, heads, kv_heads))
    inherit(fused, wide, split_qkv_heads(wide.meta["val"], heads, kv_heads))
    take_parts(graph, fused, [h.node for h in part])
    if between is not None:
        widen(graph, between, width)
    return 1


def projected(graph: fx.Graph, part: Sequence[Heads]) -> Node | None:
    """(B, S, columns) of all heads side by side: the base, or one layer in place of several."""
    batch, _, rows, width = part[0].sizes
    columns = [h.columns for h in part]
    owners = [h.base for h in part]
    if len(part) == 1:  # the op splits three: one head twice that nobody reads
        one = columns[0].slice(0, 0, 1)
        assert one is not None
        columns += [one, one]
        owners *= 3
    first = min(owners)
    shape = (batch, rows, sum(c.shape[0] for c in columns) * round_up(width, TILE))
    if first.target is not aten.linear.default:
        if len(part) != 3 or not part[0].rows.is_reshape or not _in_order(part):
            return None
        if tuple(first.meta["val"].shape) == shape:
            return first
        with graph.inserting_after(first):
            return _reshape(graph, first, shape)
    weights = [a for o in owners for a in o.args[1:] if a is not None]
    if not all(_hoisted(weight, first) for weight in weights):
        return None
    with graph.inserting_before(first):
        args = [_in_rows(graph, part[0]), *_weights(graph, owners, columns)]
        wide = graph.call_function(aten.linear.default, tuple(args))
    wide.meta.update({k: v for k, v in first.meta.items() if k != "val"})
    inherit(wide, first, first.meta["val"].new_empty(shape))
    return wide


def _hoisted(weight: Node, before: Node) -> bool:
    """Bring what makes a weight in front of a node; False if that hangs on more than weights."""
    if weight.op == "placeholder" or weight < before:
        return True
    if not all(_hoisted(source, before) for source in weight.all_input_nodes):
        return False
    if not weight.all_input_nodes:
        return False
    before.prepend(weight)
    return True


def take_parts(graph: fx.Graph, fused: Node, nodes: Sequence[Node]) -> None:
    """Let the parts of a fused split stand for these nodes."""
    for index, node in enumerate(nodes):
        with graph.inserting_after(fused):
            made = graph.call_function(operator.getitem, (fused, index))
        inherit(made, node, fused.meta["val"][index])
        wanted = tuple(node.meta["val"].shape)
        if len(wanted) == 3:
            with graph.inserting_after(made):
                made = _reshape(graph, made, wanted)
        node.replace_all_uses_with(made)


def _in_order(part: Sequence[Heads]) -> bool:
    """Whether the columns of the three stand side by side already."""
    joined = [i for h in part for i in h.columns.indices().ravel().tolist()]
    return joined == list(range(part[0].columns.source[0]))


def _in_rows(graph: fx.Graph, heads: Heads) -> Node:
    """The layer's input as (B, S, features)."""
    source = heads.base.args[0]
    shape = tuple(source.meta["val"].shape)
    width = shape[-1]
    wide = IndexMap(
        shape,
        (*(tuple((n, s * width) for n, s in axis) for axis in heads.rows.axes), ((width, 1),)),
        heads.rows.offset * width,
    )
    steps = moves(wide)
    assert steps is not None  # the rows have steps, and whole rows follow them
    return write(graph, source, steps, source)


def _weights(graph: fx.Graph, owners: Sequence[Node], columns: Sequence[IndexMap]) -> list[Node]:
    """Weight and bias with their rows in the order of the heads."""
    made = []
    for place in range(1, len(owners[0].args)):
        if owners[0].args[place] is None:
            continue
        sources = [o.args[place] for o in owners]
        whole = sources[0].meta["val"].shape
        joined = [i for c in columns for i in c.indices().ravel().tolist()]
        aligned = columns[0].shape[1] % TILE == 0
        if aligned and len(set(sources)) == 1 and joined == list(range(whole[0])):
            made.append(sources[0])
            continue
        parts = [_ordered(graph, s, c) for s, c in zip(sources, columns, strict=True)]
        cat = graph.call_function(aten.cat.default, (parts, 0))
        inherit(cat, sources[0], torch.cat([p.meta["val"] for p in parts], 0))
        made.append(cat)
    return made


def _ordered(graph: fx.Graph, weight: Node, columns: IndexMap) -> Node:
    shape = tuple(weight.meta["val"].shape)
    inner = prod(shape[1:])
    axes = tuple(tuple((n, s * inner) for n, s in axis) for axis in columns.axes)
    tail = (((inner, 1),),) if len(shape) > 1 else ()
    chart = IndexMap(shape, axes + tail, columns.offset * inner)
    flat = chart.reshape((prod(columns.shape), *shape[1:]))
    assert flat is not None
    steps = moves(flat)
    assert steps is not None
    node = write(graph, weight, steps, weight)
    heads, width = columns.shape
    return node if width % TILE == 0 else padded(graph, node, heads, width, dim=0)


def _reshape(graph: fx.Graph, node: Node, shape: tuple[int, ...]) -> Node:
    made = graph.call_function(aten.reshape.default, (node, list(shape)))
    inherit(made, node, node.meta["val"].reshape(shape))
    return made
