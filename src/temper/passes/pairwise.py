"""Dot products of all pairs of embedded features, as recommenders build them.

``linear(cat(x, pairs(bmm(T, T'))))`` with T = stack(x, table(ids[:, 0]), ...) asks for a stack of
rows that lie in 27 places, and for the lower half of every sample's matrix of products. Here all
tables are one table that is looked up once, in whole tiles; the choice of pairs goes into the
linear layer's weight, whose columns for pairs that nobody chose are zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.fused import concat_heads, gather_rows, lookup_tables
from temper.graph.match import add_call, inherit
from temper.graph.node import Node, is_node
from temper.options import Options
from temper.passes.two_layers import as_two_layers, columns_of, weight_part
from temper.program.tensor import TILE, round_up

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten.reshape.default, aten.flatten.using_ints)
_PRODUCTS = (aten.bmm.default, aten.matmul.default)


@dataclass(frozen=True)
class Interaction:
    """What was found: the layer, the part of its input that is products, and the features."""

    layer: Node
    parts: Sequence[Node]  # of the layer's input
    place: int  # of the products among them
    chosen: Node | None  # places in the flat matrix of products; None: all
    dense: Node
    dense_row: int
    ids: Node
    columns: Sequence[int]  # of the ids, by embedded feature
    tables: Sequence[Node]

    @property
    def count(self) -> int:
        """Features, the dense one included."""
        return len(self.tables) + 1


def fuse_pairwise(captured: Captured, options: Options) -> int:
    """Every linear layer over products of pairs."""
    hits = 0
    for node in list(captured.graph.nodes):
        found = _found(captured, node)
        if found is not None:
            _write(captured, found)
            hits += 1
    captured.graph.eliminate_dead_code()
    return hits


# --- finding --------------------------------------------------------------------------------------


def _found(captured: Captured, layer: Node) -> Interaction | None:
    if layer.target is not aten.linear.default:
        return None
    source = layer.args[0]
    parts = columns_of(source) if len(source.users) == 1 else None
    for place, part in enumerate(parts or [source]):
        chosen, products = _chosen(captured, part)
        features = _features(products) if products is not None else None
        if features is not None and _one_row(layer, parts or [source]):
            return Interaction(layer, parts or [source], place, chosen, *features)
    return None


def _one_row(layer: Node, parts: Sequence[Node]) -> bool:
    return layer.meta["val"].dim() == 2 and all(p.meta["val"].dim() == 2 for p in parts)


def _chosen(captured: Captured, node: Node) -> tuple[Node | None, Node | None]:
    """Places in a flat matrix, and the matrix (B, n, n); (None, None) if it is something else."""
    if len(node.users) != 1:
        return None, None
    if node.target is aten.index_select.default and int(node.args[1]) % 2 == 1:
        flat, places = node.args[0], node.args[2]
        whole = _chosen(captured, flat)[1] if flat.target in _VIEWS else None
        known = whole is not None and captured.is_fixed(places)
        return (places, whole) if known else (None, None)
    if node.target is aten.index.Tensor:
        matrix, (first, *both) = node.args[0], node.args[1]
        shape = matrix.meta["val"].shape
        plain = first is None and len(both) == 2 and all(is_node(b) for b in both)
        if not plain or len(shape) != 3 or any(b.meta["val"].dim() != 1 for b in both):
            return None, None
        if not all(map(captured.is_fixed, both)):
            return None, None
        graph = captured.graph
        with graph.inserting_before(node):  # places may be counted from the end
            row, column = (add_call(graph, aten.remainder.Scalar, node, b, shape[2]) for b in both)
            rows = add_call(graph, aten.mul.Tensor, node, row, shape[2])
            return add_call(graph, aten.add.Tensor, node, rows, column), matrix
    if node.target in _VIEWS:
        matrix = node.args[0]
        shape = matrix.meta["val"].shape
        if len(shape) == 3 and tuple(node.meta["val"].shape) == (shape[0], shape[1] * shape[2]):
            return None, matrix
    return None, None


def _features(products: Node) -> tuple[Node, int, Node, list[int], list[Node]] | None:
    """Dense feature and its row, ids, their columns and the tables, of bmm(T, T')."""
    if products.target not in _PRODUCTS or len(products.users) != 1:
        return None
    stacked, turned = products.args
    swaps = turned.target is aten.transpose.int and turned.args[0] is stacked
    if not swaps or sorted(int(d) % 3 for d in turned.args[1:3]) != [1, 2]:
        return None
    if set(stacked.users) != {turned, products} or len(turned.users) != 1:
        return None
    rows = _rows(stacked)
    if rows is None or len(rows) > TILE or len({r.meta["val"].dtype for r in rows}) != 1:
        return None
    dense = [i for i, r in enumerate(rows) if r.target is not aten.embedding.default]
    lookups = [r for r in rows if r.target is aten.embedding.default]
    if len(dense) != 1 or not lookups or any(len(r.users) != 1 for r in lookups):
        return None
    picks = [r.args[1] for r in lookups]
    if any(p.target is not aten.select.int or p.args[0] is not picks[0].args[0] for p in picks):
        return None
    ids = picks[0].args[0]
    if ids.meta["val"].dim() != 2 or any(int(p.args[1]) % 2 != 1 for p in picks):
        return None
    columns = [int(p.args[2]) % ids.meta["val"].shape[1] for p in picks]
    tables = [r.args[0] for r in lookups]
    if columns != list(range(ids.meta["val"].shape[1])):
        return None
    if any(t.op != "placeholder" for t in tables):
        return None
    return rows[dense[0]], dense[0], ids, columns, tables


def _rows(stacked: Node) -> list[Node] | None:
    """The (B, w) parts of a stack (B, n, w), or of a concatenation that is viewed as one."""
    shape = tuple(stacked.meta["val"].shape)
    if stacked.target is aten.stack.default:
        dim = int(stacked.args[1]) if len(stacked.args) > 1 else 0
        return list(stacked.args[0]) if len(shape) == 3 and dim % 3 == 1 else None
    if stacked.target in _VIEWS and len(stacked.args[0].users) == 1:
        parts = columns_of(stacked.args[0])
        alike = parts is not None and all(
            tuple(p.meta["val"].shape) == (shape[0], shape[2]) for p in parts
        )
        return parts if alike and parts is not None and len(parts) == shape[1] else None
    return None


# --- writing --------------------------------------------------------------------------------------


def _write(captured: Captured, found: Interaction) -> None:
    """Rows in the order of the ids' columns, the dense feature behind them, zeros to a tile."""
    graph, layer, count = captured.graph, found.layer, found.count
    batch, width = found.dense.meta["val"].shape
    wide = round_up(width, TILE)
    with graph.inserting_before(layer):
        sizes = [int(t.meta["val"].shape[0]) for t in found.tables]
        whole = add_call(graph, aten.cat.default, layer, list(found.tables), 0)
        whole = _padded(graph, whole, layer, wide - width)  # and a row of zeros
        firsts = [sum(sizes[:i]) for i in range(len(sizes))]
        limits = [*firsts, *[sum(sizes)] * (TILE - len(sizes)), sum(sizes) + 1]
        looked = graph.call_function(lookup_tables, (found.ids, whole, limits))
        inherit(looked, layer, layer.meta["val"].new_empty(batch, TILE, wide))
        dense = _padded(graph, found.dense, layer, wide - width)
        places = torch.full((batch, TILE), batch)
        places[:, count - 1] = torch.arange(batch)
        spread = graph.call_function(gather_rows, (dense, captured.constant(places, "places")))
        inherit(spread, layer, looked.meta["val"])
        stacked = add_call(graph, aten.add.Tensor, layer, looked, spread)
        turned = add_call(graph, aten.transpose.int, layer, stacked, 1, 2)
        products = add_call(graph, aten.bmm.default, layer, stacked, turned)
        apart = add_call(graph, aten.permute.default, layer, products, [1, 0, 2])
        apart = add_call(graph, aten.unsqueeze.default, layer, apart, 0)
        joined = add_call(graph, concat_heads, layer, apart)
        flat = add_call(graph, aten.reshape.default, layer, joined, [batch, TILE * TILE])
        span = _columns(found)
        weight = weight_part(graph, layer, *span)
        weight = add_call(graph, aten.matmul.default, layer, weight, _hot(captured, found))
        rest = [p for i, p in enumerate(found.parts) if i != found.place]
        as_two_layers(graph, layer, span, flat, weight, rest)


def _columns(found: Interaction) -> tuple[int, int]:
    """Where the products stand among the columns of the layer's weight."""
    sizes = [int(p.meta["val"].shape[1]) for p in found.parts]
    first = sum(sizes[: found.place])
    return first, first + sizes[found.place]


def _hot(captured: Captured, found: Interaction) -> Node:
    """A row for each chosen pair: 1 where its product stands among the padded ones."""
    graph, layer, count = captured.graph, found.layer, found.count
    # The row of each feature in the padded stack: embedded ones first, then the dense one.
    rows = torch.tensor([i if i < found.dense_row else i - 1 for i in range(count)])
    rows[found.dense_row] = count - 1
    where = captured.constant((rows[:, None] * TILE + rows).flatten(), "pairs")
    if found.chosen is not None:
        where = add_call(graph, aten.index_select.default, layer, where, 0, found.chosen)
    column = add_call(graph, aten.unsqueeze.default, layer, where, 1)
    every = captured.constant(torch.arange(TILE * TILE)[None], "columns")
    hot = add_call(graph, aten.eq.Tensor, layer, column, every)
    made = graph.call_function(aten.to.dtype, (hot, layer.meta["val"].dtype))
    inherit(made, layer, layer.meta["val"].new_empty(hot.meta["val"].shape))
    return made


def _padded(graph: fx.Graph, node: Node, like: Node, columns: int) -> Node:
    """Zeros behind the columns, and a row of them at the end."""
    return add_call(graph, aten.constant_pad_nd.default, like, node, [0, columns, 0, 1])
