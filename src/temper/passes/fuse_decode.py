"""Heads of a decode step: users stay in front of heads, as the chip's decode ops want them.

transformers brings heads in front of users, rotates, and the cache turns them back. Here the
rotation moves behind the turns, which then cancel; what is left of one projection's split and of
the join after attention are the chip's two head ops for decoding.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import fx

from temper.graph import cache_ops
from temper.graph.captured import Captured
from temper.graph.fused import concat_heads_decode, rotary_embedding, split_heads_decode
from temper.graph.match import inherit
from temper.graph.node import Node, is_node
from temper.options import Options

aten = torch.ops.aten

_SPLITS = (aten.split_with_sizes.default, aten.split.Tensor)
_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


def fuse_decode(captured: Captured, options: Options) -> int:
    """Rotations behind the turns of heads, one split for q, k and v, one join after attention."""
    graph = captured.graph
    steps = [n for n in graph.nodes if n.target is cache_ops.sdpa_decode]
    if not steps:
        return 0
    hits = sum(_rotate_behind_turn(graph, n) for n in list(graph.nodes))
    hits += sum(_cancel_turn(n) for n in list(graph.nodes))
    for node in steps:
        hits += _split(graph, node) + _join(graph, node)
    graph.eliminate_dead_code()
    return hits


def _swaps(node: object) -> bool:
    """Whether a node exchanges the two middle ones of four dimensions."""
    if not is_node(node) or node.target is not aten.transpose.int:  # type: ignore[attr-defined]
        return False
    return sorted(d % 4 for d in node.args[1:3]) == [1, 2] and node.meta["val"].dim() == 4  # type: ignore[attr-defined]


def _rotate_behind_turn(graph: fx.Graph, node: Node) -> int:
    if node.target is not rotary_embedding or not _swaps(node.args[0]):
        return 0
    if not node.users or not all(_swaps(user) for user in node.users):
        return 0
    x = node.args[0].args[0]
    with graph.inserting_before(node):
        turned = []
        for table in node.args[1:3]:
            one = graph.call_function(aten.transpose.int, (table, 1, 2))
            inherit(one, table, table.meta["val"].transpose(1, 2))
            turned.append(one)
        made = graph.call_function(rotary_embedding, (x, *turned))
    inherit(made, node, node.meta["val"].transpose(1, 2))
    for user in list(node.users):
        user.replace_all_uses_with(made)
    return 1


def _cancel_turn(node: Node) -> int:
    if _swaps(node) and _swaps(node.args[0]):
        node.replace_all_uses_with(node.args[0].args[0])
        return 1
    return 0


@dataclass(frozen=True)
class _Heads:
    """(1, users, count, depth) that are neighbouring heads of one projection."""

    source: Node
    first: int
    count: int
    node: Node


def _heads_of(node: Node) -> _Heads | None:
    """A view of some columns as heads, or some heads of a view of all columns."""
    shape = node.meta["val"].shape
    if len(shape) != 4 or shape[0] != 1:
        return None
    depth = shape[3]
    if node.target is aten.slice.Tensor and node.args[0].target in _VIEWS:
        dim, start = [*node.args[1:], None, None][:2]
        view = node.args[0]
        wide = view.args[0].meta["val"].shape
        if int(dim or 0) % 4 != 2 or len(wide) != 3 or wide[2] != view.meta["val"].shape[2] * depth:
            return None
        return _Heads(view.args[0], int(start or 0), shape[2], node)
    cut = _columns_of(node.args[0], shape[2] * depth) if node.target in _VIEWS else None
    if cut is None or cut[1] % depth:
        return None
    return _Heads(cut[0], cut[1] // depth, shape[2], node)


def _columns_of(node: Node, width: int) -> tuple[Node, int] | None:
    """The projection that heads are cut from, and their first column."""
    if not is_node(node) or node.op != "call_function":
        return None
    if node.target is aten.slice.Tensor:
        dim, start = [*node.args[1:], None, None][:2]
        source, begin = node.args[0], int(start or 0)
    elif node.target is operator.getitem and node.args[0].target in _SPLITS:
        split = node.args[0]
        dim = split.args[2] if len(split.args) > 2 else 0
        source = split.args[0]
        begin = sum(part.shape[-1] for part in split.meta["val"][: node.args[1]])
    else:
        source, begin, dim = node, 0, 2
    shape = node.meta["val"].shape
    if source.meta["val"].dim() != 3 or int(dim or 0) % 3 != 2 or shape[-1] != width:
        return None
    return source, begin


def _unrotated(node: Node) -> Node:
    return node.args[0] if node.target is rotary_embedding else node


def _split(graph: fx.Graph, step: Node) -> int:
    """q, k and v of one projection as one op."""
    writes = step.args[1:3]
    if any(w.target is not cache_ops.update_cache for w in writes):
        return 0
    made = [_heads_of(_unrotated(n)) for n in (step.args[0], *(w.args[1] for w in writes))]
    if any(part is None for part in made):
        return 0
    q, k, v = parts = tuple(part for part in made if part is not None)
    depth = q.node.meta["val"].shape[3]
    if k.count != v.count or any(p.node.meta["val"].shape[3] != depth for p in parts):
        return 0
    source = _one_projection(graph, parts, depth)
    if source is None:
        return 0
    with graph.inserting_after(source):
        fused = graph.call_function(split_heads_decode, (source, q.count, k.count))
    inherit(fused, source, tuple(part.node.meta["val"] for part in parts))
    for index, part in enumerate(parts):
        with graph.inserting_after(fused):
            one = graph.call_function(operator.getitem, (fused, index))
        inherit(one, part.node, part.node.meta["val"])
        part.node.replace_all_uses_with(one)
    return 1


def _one_projection(graph: fx.Graph, parts: Sequence[_Heads], depth: int) -> Node | None:
    """The projection whose columns are q, k and v, in this order; three of one input are joined."""
    sources = [part.source for part in parts]
    ends = [0, *accumulate(part.count for part in parts)]
    if len(set(sources)) == 1:
        in_order = [part.first for part in parts] == ends[:3]
        whole = sources[0].meta["val"].shape[-1] == ends[3] * depth
        return sources[0] if in_order and whole else None
    if any(s.target is not aten.linear.default or len(s.users) != 1 for s in sources):
        return None
    if any(s.meta["val"].shape[-1] != p.count * depth for s, p in zip(sources, parts, strict=True)):
        return None
    if len({s.args[0] for s in sources}) != 1 or len({_signature(s) for s in sources}) != 1:
        return None
    order = {node: index for index, node in enumerate(graph.nodes)}
    first = min(sources, key=order.__getitem__)
    operands = [[s.args[i] for s in sources] for i in range(1, len(first.args)) if first.args[i]]
    if any(order[tensor] > order[first] for tensors in operands for tensor in tensors):
        return None
    with graph.inserting_before(first):
        joined = []
        for tensors in operands:
            joined.append(graph.call_function(aten.cat.default, (tensors, 0)))
            inherit(joined[-1], first, torch.cat([t.meta["val"] for t in tensors], 0))
        made = graph.call_function(aten.linear.default, (first.args[0], *joined))
    made.meta.update({key: value for key, value in first.meta.items() if key != "val"})
    shape = (*first.meta["val"].shape[:-1], ends[3] * depth)
    inherit(made, first, first.meta["val"].new_empty(shape))
    return made


def _signature(linear: Node) -> tuple[bool, object]:
    bias = len(linear.args) > 2 and linear.args[2] is not None
    return bias, (linear.meta.get("weight_format") or {}).get("format")


def _join(graph: fx.Graph, step: Node) -> int:
    _, users, heads, depth = step.meta["val"].shape
    hits = 0
    for user in list(step.users):
        if user.target in _VIEWS and tuple(user.meta["val"].shape) == (1, users, heads * depth):
            with graph.inserting_after(step):
                made = graph.call_function(concat_heads_decode, (step,))
            inherit(made, user, user.meta["val"])
            user.replace_all_uses_with(made)
            hits += 1
    return hits
