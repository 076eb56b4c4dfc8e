"""Rows of several tables that are joined, as recommenders read them: one lookup for all.

``cat([table(ids[:, i]) for i, table in enumerate(tables)], 1)`` is a slice of the ids, a lookup and
a change of layout for each table. Here the tables are one, in whole tiles of columns, looked up
once: table by table, so that rows stand side by side as heads do and columns of zeros that fill
tiles meet columns of zeros in the weight of the layer behind; or sample by sample where something
else than a layer or a sum reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx

from temper import chips
from temper.graph.captured import Captured
from temper.graph.fused import concat_heads, lookup_apart, lookup_tables, trim_columns
from temper.graph.match import add_call, inherit
from temper.graph.node import Node
from temper.graph.views import write
from temper.options import Options
from temper.passes.two_layers import as_two_layers, columns_of, weight_part
from temper.passes.view_analysis import REDUCTIONS, Analysis
from temper.program.index_map import IndexMap, joined_maps
from temper.program.index_moves import Move, moves
from temper.program.tensor import TILE, round_up

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten.reshape.default, aten.flatten.using_ints)
_JOINS = (aten.cat.default, aten.stack.default)
_SQUARES = (aten.mul.Tensor, aten.pow.Tensor_Scalar)
# Fewer lookups than this are as quick one by one.
_LEAST = 3
# Zeros that widen tables to whole tiles may take this part of the DRAM.
_SHARE = 8


@dataclass(frozen=True)
class LookedUp:
    """Neighbours among the parts of a join that are rows of tables, by columns of one value; or
    one lookup of a table by several columns."""

    join: Node
    first: int  # place among the parts
    tables: Sequence[Node]  # one for each column, or one for all
    ids: Node  # what the indices are columns of
    steps: Sequence[Move]  # from it to (samples, columns)
    samples: int
    count: int
    width: int

    @property
    def rest(self) -> tuple[list[Node], list[Node]]:
        """The parts in front of the lookups and behind them."""
        if self.join.target not in _JOINS:
            return [], []
        parts = list(self.join.args[0])
        return parts[: self.first], parts[self.first + self.count :]

    @property
    def wide(self) -> int:
        """Columns of a row in whole tiles."""
        return round_up(self.width, TILE)

    @property
    def zeros_bytes(self) -> int:
        """What tables in whole tiles of columns hold beside their own values."""
        rows = sum(int(table.meta["val"].shape[0]) for table in self.tables)
        return rows * (self.wide - self.width) * int(self.join.meta["val"].element_size())


@dataclass(frozen=True)
class LayerBehind:
    """A linear layer: where the looked-up columns begin in its input, and what stands beside."""

    layer: Node
    begin: int
    rest: tuple[Node, ...]


@dataclass(frozen=True)
class Readers:
    """All that reads the rows: layers, and squares and sums that keep columns apart, in order."""

    layers: Sequence[LayerBehind]
    columnwise: Sequence[Node] = ()


def join_lookups(captured: Captured, options: Options) -> int:
    """Every stack or concatenation along the last axis with several lookups in it."""
    graph, chip = captured.graph, chips.get(options["chip"])
    if not any(n.target is aten.embedding.default for n in graph.nodes):
        return 0
    seen = Analysis(graph, set(graph.nodes))
    seen.run()
    hits = 0
    for node in list(graph.nodes):
        found = _joined_tables(captured, node, seen) if node.target in _JOINS else None
        if node.target is aten.embedding.default:
            found = _one_table(captured, node)
        if found is None:
            continue
        small = found.zeros_bytes <= chip.dram_total_bytes // _SHARE
        readers = _readers(found) if small else None
        if readers is not None or node.target in _JOINS:
            _write(captured, found, readers)
            hits += 1
    graph.eliminate_dead_code()
    return hits


# --- finding --------------------------------------------------------------------------------------


def _one_table(captured: Captured, node: Node) -> LookedUp | None:
    """A table looked up by several columns, where the rows are read side by side or summed."""
    ids = node.args[1]
    if ids.meta["val"].dim() != 2 or not captured.is_fixed(node.args[0]):
        return None
    found = LookedUp(node, 0, [node.args[0]], ids, [], *map(int, node.meta["val"].shape))
    return found if found.count > 1 and _readers(found) is not None else None


def _joined_tables(captured: Captured, join: Node, seen: Analysis) -> LookedUp | None:
    """The longest run of lookups of one width in a join of (samples, width) rows."""
    dim = int(join.args[1]) if len(join.args) > 1 else int(join.kwargs.get("dim", 0))
    if join.args[0][0].meta["val"].dim() != 2 or dim % join.meta["val"].dim() != 1:
        return None
    best: list[Node] = []
    begin, run = 0, list[Node]()
    for place, part in enumerate(join.args[0]):
        if not _is_lookup(captured, part) or (run and _alike(part) != _alike(run[0])):
            run = []
        if _is_lookup(captured, part):
            run = [*run, part]
        if len(run) > len(best):
            best, begin = run, place + 1 - len(run)
    if len(best) < _LEAST or len(set(best)) < len(best):
        return None
    columns = [seen.shown.get(part.args[1]) for part in best]
    charts = [c.chart for c in columns if c is not None and isinstance(c.chart, IndexMap)]
    if len(charts) < len(best) or len({c.base for c in columns if c is not None}) > 1:
        return None
    apart = [c for chart in charts if (c := chart.reshape((*chart.shape, 1))) is not None]
    whole = joined_maps(apart, 1) if len(apart) == len(charts) else None
    steps = moves(whole) if whole is not None else None
    if columns[0] is None or steps is None or any(step.kind == "flip" for step in steps):
        return None
    tables, shape = [lookup.args[0] for lookup in best], (len(best[0].meta["val"]), len(best))
    return LookedUp(join, begin, tables, columns[0].base.node, steps, *shape, _alike(best[0])[0])


def _is_lookup(captured: Captured, node: Node) -> bool:
    return (
        node.target is aten.embedding.default
        and len(node.users) == 1
        and node.args[1].meta["val"].dim() == 1
        and captured.is_fixed(node.args[0])
    )


def _alike(lookup: Node) -> tuple[int, torch.dtype]:
    return int(lookup.meta["val"].shape[-1]), lookup.meta["val"].dtype


def _readers(found: LookedUp) -> Readers | None:
    """Linear layers that read the rows side by side, and sums over the tables, of the rows or of
    their squares; None where something else reads them."""
    join, (before, after) = found.join, found.rest
    if not join.users:
        return None
    if join.target is aten.cat.default:
        rest, begin = [*before, *after], sum(map(_columns, before))
        if found.width == 1 and not rest and all(_sums(user, (1, -1)) for user in join.users):
            return Readers([], list(join.users))
        behind = _behind(join, begin, rest)
        return None if behind is None else Readers(behind)
    layers: list[LayerBehind] = []
    columnwise: list[Node] = []
    flat = (found.samples, found.count * found.width)
    waiting = [join] if before or after else list(join.users)
    while waiting:
        reader = waiting.pop()
        if reader.target in _VIEWS and tuple(reader.meta["val"].shape) == flat:
            behind = _behind(reader, 0, []) if reader.args[0] is join else None
            if behind is None:
                return None
            layers += behind
        elif reader.target in _SQUARES and reader.args[1] in (reader.args[0], 2):
            columnwise.append(reader)
            waiting += [user for user in reader.users if user not in waiting]
        elif _sums(reader, (1, -2)):
            columnwise.append(reader)
        else:
            return None
    return Readers(layers, list(dict.fromkeys(columnwise)))


def _sums(node: Node, dims: Sequence[int]) -> bool:
    if node.target not in REDUCTIONS or node.kwargs or not 1 < len(node.args) < 4:
        return False
    return len(node.args[1]) == 1 and int(node.args[1][0]) in dims


def _columns(node: Node) -> int:
    return int(node.meta["val"].shape[1])


def _behind(flat: Node, begin: int, rest: Sequence[Node]) -> list[LayerBehind] | None:
    """The layers over a row of features, by itself or with others beside it."""
    layers: list[LayerBehind] = []
    for reader in flat.users:
        parts = columns_of(reader) if not rest else None
        if reader.target is aten.linear.default and reader.args[0] is flat:
            layers.append(LayerBehind(reader, begin, tuple(rest)))
        elif parts is not None and reader.meta["val"].dim() == 2 and parts.count(flat) == 1:
            place = parts.index(flat)
            others = [*parts[:place], *parts[place + 1 :]]
            more = _behind(reader, sum(map(_columns, parts[:place])), others)
            if more is None:
                return None
            layers += more
        else:
            return None
    return layers


# --- writing --------------------------------------------------------------------------------------


def _write(captured: Captured, found: LookedUp, readers: Readers | None) -> None:
    graph, join, wide = captured.graph, found.join, found.wide
    with graph.inserting_before(join):
        ids = write(graph, found.ids, found.steps, join) if found.steps else found.ids
        limits: list[int] = []
        whole = found.tables[0]
        if len(found.tables) > 1:
            sizes = [int(t.meta["val"].shape[0]) for t in found.tables]
            limits = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
            whole = add_call(graph, aten.cat.default, join, list(found.tables), 0)
        if readers is None:
            rows = graph.call_function(lookup_tables, (ids, whole, limits))
            shape = (found.samples, found.count, found.width)
            inherit(rows, join, join.meta["val"].new_empty(shape))
            _replace(captured, found, rows)
            return
        whole = add_call(graph, aten.constant_pad_nd.default, join, whole, [0, wide - found.width])
        apart = graph.call_function(lookup_apart, (ids, whole, limits))
        inherit(apart, join, join.meta["val"].new_empty(found.count, found.samples, wide))
        heads = add_call(graph, aten.unsqueeze.default, join, apart, 0)
        flat = add_call(graph, concat_heads, join, heads)
        flat = add_call(graph, aten.reshape.default, join, flat, [found.samples, -1])
    for one in readers.layers:
        with graph.inserting_before(one.layer):
            weight = _padded_weight(graph, found, one, wide)
            span = (one.begin, one.begin + found.count * found.width)
            as_two_layers(graph, one.layer, span, flat, weight, one.rest)
    values = {join: apart}
    for node in readers.columnwise:
        source = values[node.args[0]]
        with graph.inserting_before(node):
            if node.target in _SQUARES:
                by = 2 if node.args[1] == 2 else source
                values[node] = add_call(graph, node.target, node, source, by)
                continue
            total = add_call(graph, node.target, node, source, [0])
            total = add_call(graph, trim_columns, node, total, found.width)
            kept = list(node.meta["val"].shape)
            node.replace_all_uses_with(add_call(graph, aten.reshape.default, node, total, kept))


def _padded_weight(graph: fx.Graph, found: LookedUp, one: LayerBehind, wide: int) -> Node:
    """The weight's columns of each table with zeros behind them."""
    layer, columns = one.layer, found.count * found.width
    weight = weight_part(graph, layer, one.begin, one.begin + columns)
    out = int(weight.meta["val"].shape[0])
    apart = [out, found.count, found.width]
    weight = add_call(graph, aten.reshape.default, layer, weight, apart)
    pads = [0, wide - found.width]
    weight = add_call(graph, aten.constant_pad_nd.default, layer, weight, pads)
    return add_call(graph, aten.reshape.default, layer, weight, [out, found.count * wide])


def _replace(captured: Captured, found: LookedUp, rows: Node) -> None:
    """The join of rows (samples, tables, width) and of whatever stood beside them."""
    graph, join = captured.graph, found.join
    before, after = found.rest
    with graph.inserting_before(join):
        if join.target is aten.cat.default:
            rows = add_call(graph, aten.reshape.default, join, rows, [found.samples, -1])
        else:
            before, after = (
                [add_call(graph, aten.unsqueeze.default, join, p, 1) for p in parts]
                for parts in (before, after)
            )
        made = rows
        if before or after:
            made = add_call(graph, aten.cat.default, join, [*before, rows, *after], 1)
    join.replace_all_uses_with(made)
