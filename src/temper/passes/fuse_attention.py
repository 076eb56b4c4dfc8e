"""Attention written out by hand: scaled dot products, rotary embedding."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.fused import rotary_embedding
from temper.graph.match import Either, Match, Num, Var, call, rewrite, strip_casts
from temper.graph.node import Node, is_node
from temper.graph.views import write
from temper.options import Options
from temper.passes.view_analysis import Analysis, Shown
from temper.program.index_map import IndexMap
from temper.program.index_moves import moves

aten = torch.ops.aten

_MATMULS = (aten.matmul.default, aten.bmm.default)
_SOFTMAX = (aten.softmax.int, aten._softmax.default)
_SCORES = call(_MATMULS, Var("q"), Var("kt"))
_SCALED = Either((
    call(aten.mul.Tensor, _SCORES, Num(name="mul")),
    call(aten.div.Tensor, _SCORES, Num(name="div")),
    _SCORES,
))  # fmt: skip
_ATTENTION = call(
    _MATMULS,
    call(_SOFTMAX, Either((call(aten.add.Tensor, _SCALED, Var("mask")), _SCALED)), name="softmax"),
    Var("v"),
)


def fuse_attention(captured: Captured, options: Options) -> int:
    """softmax(q k^T * scale + mask) v, on (B, heads, S, d)."""
    views = Analysis(captured.graph, set(captured.graph.nodes))
    views.run()

    def build(graph: fx.Graph, node: Node, found: Match) -> Node | None:
        q, turned, v = found["q"], strip_casts(found["kt"]), found["v"]
        rank = q.meta["val"].dim()
        dim = found["softmax"].args[1] % rank
        if rank not in (3, 4) or dim != rank - 1 or turned not in views.shown:
            return None
        k = _turned_back(graph, turned, views.shown[turned])
        if k is None:
            return None
        scale = found.bound.get("mul", 1 / found.bound["div"] if "div" in found.bound else 1.0)
        mask = found.bound.get("mask")
        if mask is not None and not mask.meta["val"].dtype.is_floating_point:
            return None
        return graph.call_function(
            aten.scaled_dot_product_attention.default, (q, k, v, mask), {"scale": scale}
        )

    return rewrite(captured.graph, _ATTENTION, build)


def _turned_back(graph: fx.Graph, turned: Node, shown: Shown) -> Node | None:
    """Keys as (..., S, d), where that takes no more moves than the transposed keys took."""
    if not isinstance(shown.chart, IndexMap):
        return None
    rank = len(shown.chart.axes)
    chart = shown.chart.permute([*range(rank - 2), rank - 1, rank - 2])
    before, steps = moves(shown.chart), moves(chart)
    if before is None or steps is None or len(steps) > len(before) or not before:
        return None
    return write(graph, shown.base.node, steps, turned)


def fuse_rotary(captured: Captured, options: Options) -> int:
    """x * cos + cat(-x2, x1) * sin."""
    first = call(aten.mul.Tensor, Var("x"), Var("cos"))
    second = call(aten.mul.Tensor, call(aten.cat.default, name="cat"), Var("sin"))

    def build(graph: fx.Graph, node: Node, found: Match) -> Node | None:
        x = found["x"]
        if not _rotates_half(found["cat"], x):
            return None
        return graph.call_function(rotary_embedding, (x, found["cos"], found["sin"]))

    return rewrite(captured.graph, call(aten.add.Tensor, first, second), build)


def _rotates_half(cat: Node, x: Node) -> bool:
    parts = cat.args[0]
    width = x.meta["val"].shape[-1]
    rank = x.meta["val"].dim()
    dim = cat.args[1] if len(cat.args) > 1 else 0
    if len(parts) != 2 or int(dim) % rank != rank - 1:
        return False
    minus, plain = parts
    if not is_node(minus) or minus.target is not aten.neg.default:
        return False
    return _slice_of(minus.args[0], x, width // 2, width) and _slice_of(plain, x, 0, width // 2)


def _slice_of(node: Any, x: Node, start: int, stop: int) -> bool:
    if not is_node(node) or node.target is not aten.slice.Tensor:
        return False
    args = [*node.args[1:], None, None, None]
    rank, width = x.meta["val"].dim(), x.meta["val"].shape[-1]
    return (
        strip_casts(node.args[0]) is strip_casts(x)
        and int(args[0] or 0) % rank == rank - 1
        and int(args[1] or 0) == start
        and min(int(args[2] or width), width) == stop
    )
