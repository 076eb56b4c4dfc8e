"""Heads of a decode step: users stay in front of heads, as the chip's decode ops want them.

transformers brings heads in front of users, rotates, and the cache turns them back. Here the
rotation moves behind the turns, which then cancel; what is left of one projection's split and of
the join after attention are the chip's two head ops for decoding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from temper.graph import cache_ops
from temper.graph.captured import Captured
from temper.graph.fused import concat_heads_decode, rotary_embedding, split_heads_decode
from temper.graph.match import inherit
from temper.graph.node import Node, is_node
from temper.options import Options
from temper.passes.heads import Heads, heads_of, key_of, projected, read_alone, take_parts
from temper.passes.view_analysis import Analysis, Shown
from temper.program.tensor import TILE

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


def fuse_decode(captured: Captured, options: Options) -> int:
    """Rotations behind the turns of heads, one split for q, k and v, one join after attention."""
    graph = captured.graph
    steps = [n for n in graph.nodes if n.target is cache_ops.sdpa_decode]
    if not steps:
        return 0
    hits = sum(_rotate_behind_turn(graph, n) for n in list(graph.nodes))
    hits += sum(_cancel_turn(n) for n in list(graph.nodes))
    graph.eliminate_dead_code()  # rotations in front of a turn read the layers no more
    for node in steps:
        hits += _split(graph, node) + _join(graph, node)
    graph.eliminate_dead_code()
    return hits


def _swaps(found: object) -> bool:
    """Whether a node exchanges the two middle ones of four dimensions."""
    if not is_node(found):
        return False
    node: Node = found
    if node.target is aten.permute.default:
        return [int(d) % 4 for d in node.args[1]] == [0, 2, 1, 3]
    if node.target in _VIEWS:
        before, after = node.args[0].meta["val"].shape, node.meta["val"].shape
        return _one_in_the_middle(after) and list(before) == _turned(after)
    if node.target is not aten.transpose.int or node.meta["val"].dim() != 4:
        return False
    return sorted(d % 4 for d in node.args[1:3]) == [1, 2]


def _one_in_the_middle(shape: Sequence[int]) -> bool:
    """One user or one head: the turn of both is a view like any other, and may be spelled so."""
    return len(shape) == 4 and 1 in shape[1:3]


def _turned(shape: Sequence[int]) -> list[int]:
    return [int(shape[d]) for d in (0, 2, 1, 3)]


def _rotate_behind_turn(graph: fx.Graph, node: Node) -> int:
    if node.target is not rotary_embedding:
        return 0
    x, shape = node.args[0], node.meta["val"].shape
    if not (_swaps(x) or _one_in_the_middle(shape)):
        return 0
    if not node.users or not all(_swaps(user) for user in node.users):
        return 0
    with graph.inserting_before(node):
        if _swaps(x):
            x = x.args[0]
        else:
            view = graph.call_function(aten.reshape.default, (x, _turned(shape)))
            inherit(view, x, x.meta["val"].reshape(_turned(shape)))
            x = view
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


def _unrotated(node: Node) -> Node:
    return node.args[0] if node.target is rotary_embedding else node


def _split(graph: fx.Graph, step: Node) -> int:
    """q, k and v of one input as one projection and one op."""
    writes = step.args[1:3]
    if any(w.target is not cache_ops.update_cache for w in writes):
        return 0
    found = Analysis(graph, set(graph.nodes))
    found.run()
    nodes = [_unrotated(n) for n in (step.args[0], *(w.args[1] for w in writes))]
    made = [_heads_of(n, found) for n in nodes]
    part = [heads for heads in made if heads is not None]
    if len(part) != 3 or len({key_of(heads) for heads in part}) != 1:
        return 0
    q, k, v = (heads.sizes[1] for heads in part)
    if k != v or part[0].sizes[3] % TILE or not read_alone(part, found):
        return 0
    wide = projected(graph, part)
    if wide is None:
        return 0
    with graph.inserting_after(wide):
        fused = graph.call_function(split_heads_decode, (wide, q, k))
    inherit(fused, wide, tuple(node.meta["val"] for node in nodes))
    take_parts(graph, fused, nodes)
    return 1


def _heads_of(node: Node, found: Analysis) -> Heads | None:
    """(1, users, heads, d) as heads of a projection: users are its rows."""
    shown = found.shown.get(node)
    if shown is None or len(shown.chart.shape) != 4 or shown.chart.shape[0] != 1:
        return None
    turned = shown.chart.permute((0, 2, 1, 3))
    return None if turned is None else heads_of(node, Shown(shown.base, turned))


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
