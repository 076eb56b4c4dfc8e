"""Attention: scaled dot products, rotary embedding, split and concatenated heads."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.fused import concat_heads, rotary_embedding, split_qkv_heads
from temper.graph.match import Either, Match, Num, Var, call, inherit, rewrite, strip_casts
from temper.graph.node import Node, is_node
from temper.options import Options

aten = torch.ops.aten

_MATMULS = (aten.matmul.default, aten.bmm.default)
_SOFTMAX = (aten.softmax.int, aten._softmax.default)
_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
_TURNS = (aten.transpose.int, aten.permute.default)
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

    def build(graph: fx.Graph, node: Node, found: Match) -> Node | None:
        q, turned, v = found["q"], strip_casts(found["kt"]), found["v"]
        rank = q.meta["val"].dim()
        dim = found["softmax"].args[1] % rank
        if rank not in (3, 4) or dim != rank - 1 or not is_node(turned):
            return None
        if turned.target is not aten.transpose.int or sorted(
            d % rank for d in turned.args[1:3]
        ) != [rank - 2, rank - 1]:
            return None
        k = turned.args[0]
        scale = found.bound.get("mul", 1 / found.bound["div"] if "div" in found.bound else 1.0)
        mask = found.bound.get("mask")
        if mask is not None and not mask.meta["val"].dtype.is_floating_point:
            return None
        return graph.call_function(
            aten.scaled_dot_product_attention.default, (q, k, v, mask), {"scale": scale}
        )

    return rewrite(captured.graph, _ATTENTION, build)


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


def fuse_heads(captured: Captured, options: Options) -> int:
    """The reshapes around attention, as the chip's two head ops."""
    return _fuse_concat(captured.graph) + _fuse_split(captured.graph)


def _fuse_concat(graph: fx.Graph) -> int:
    """transpose(1, 2) and reshape of (B, heads, S, d) to (B, S, heads * d)."""

    def build(graph: fx.Graph, node: Node, found: Match) -> Node | None:
        x = found["x"]
        if x.meta["val"].dim() != 4 or not _swaps_heads(found["t"]):
            return None
        batch, heads, rows, width = x.meta["val"].shape
        if tuple(node.meta["val"].shape) != (batch, rows, heads * width):
            return None
        return graph.call_function(concat_heads, (x,))

    return rewrite(graph, call(_VIEWS, call(_TURNS, Var("x"), name="t")), build)


def _swaps_heads(turned: Node) -> bool:
    """Whether a transpose or permute exchanges the two middle ones of four dimensions."""
    if turned.target is aten.permute.default:
        return [int(d) % 4 for d in turned.args[1]] == [0, 2, 1, 3]
    return sorted(d % 4 for d in turned.args[1:3]) == [1, 2]


def _fuse_split(graph: fx.Graph) -> int:
    """One projection cut into three parts, each as (B, heads, S, d)."""
    hits = 0
    for node in list(graph.nodes):
        if node.target in (aten.split_with_sizes.default, aten.split.Tensor):
            thirds = _head_views(node)
        elif node.target in _VIEWS:
            thirds = _head_slices(node)
        else:
            continue
        if thirds is None:
            continue
        heads = [t.meta["val"].shape[1] for t in thirds]
        if heads[1] != heads[2]:
            continue
        with graph.inserting_after(node):
            fused = graph.call_function(split_qkv_heads, (node.args[0], heads[0], heads[1]))
        inherit(fused, node, tuple(t.meta["val"] for t in thirds))
        for index, third in enumerate(thirds):
            with graph.inserting_after(fused):
                part = graph.call_function(operator.getitem, (fused, index))
            inherit(part, third, third.meta["val"])
            third.replace_all_uses_with(part)
        hits += 1
    graph.eliminate_dead_code()
    return hits


def _head_views(split: Node) -> list[Node] | None:
    """The three (B, heads, S, d) values made of a split's parts, or None."""
    source = split.args[0].meta["val"]
    parts = split.meta["val"]
    dim = split.args[2] if len(split.args) > 2 else 0
    if source.dim() != 3 or len(parts) != 3 or int(dim) % 3 != 2:
        return None
    found: dict[int, fx.Node] = {}
    for getitem in split.users:
        if len(getitem.users) != 1:
            return None
        view = next(iter(getitem.users))
        if view.target not in _VIEWS or view.meta["val"].dim() != 4 or len(view.users) != 1:
            return None
        turned = next(iter(view.users))
        if turned.target not in _TURNS or not _swaps_heads(turned):
            return None
        if view.meta["val"].shape[:2] != source.shape[:2]:
            return None
        found[getitem.args[1]] = turned
    if len(found) != 3 or len({t.meta["val"].shape[-1] for t in found.values()}) != 1:
        return None
    return [found[i] for i in range(3)]


def _head_slices(view: Node) -> list[Node] | None:
    """The same for (B, S, all heads, d) of which each part is a slice of neighbouring heads."""
    shape, source = view.meta["val"].shape, view.args[0].meta["val"].shape
    if len(shape) != 4 or len(view.users) != 3:
        return None
    if tuple(source) != (*shape[:2], shape[2] * shape[3]):
        return None
    found: dict[int, fx.Node] = {}
    for part in view.users:
        if part.target is not aten.slice.Tensor or len(part.users) != 1:
            return None
        given: dict[str, Any] = dict(
            zip(("dim", "start", "end", "step"), part.args[1:], strict=False)
        )
        turned = next(iter(part.users))
        if given.get("dim", 0) % 4 != 2 or given.get("step", 1) != 1:
            return None
        if turned.target not in _TURNS or not _swaps_heads(turned):
            return None
        found[(given.get("start") or 0) % shape[2]] = turned
    starts = sorted(found)
    sizes = [found[start].meta["val"].shape[1] for start in starts]
    if starts != [0, sizes[0], sizes[0] + sizes[1]] or sum(sizes) != shape[2]:
        return None
    return [found[start] for start in starts]
