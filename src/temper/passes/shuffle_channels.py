"""Pixel shuffles: the channels that become neighbouring pixels stand together in the weight.

A shuffle by r reads channel ``c * r * r + i * r + j`` as pixel (i, j) of channel c, so that every
element of a row goes its own way. With the convolution's output channels in the order (i, j, c),
whole runs of c move.
"""

from __future__ import annotations

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.match import add_call
from temper.graph.node import Node
from temper.options import Options

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
_TURN = [0, 1, 4, 2, 5, 3]  # (N, C, r, r, H, W) to (N, C, H, r, W, r)


def shuffle_channels(captured: Captured, options: Options) -> int:
    """Every pixel shuffle of a convolution that nobody else reads."""
    graph = captured.graph
    hits = 0
    for node in list(graph.nodes):
        apart = _shuffled(node)
        if apart is not None:
            _write(graph, apart, node)
            hits += 1
    graph.eliminate_dead_code()
    return hits


def _shuffled(turn: Node) -> Node | None:
    """The view of a convolution's channels as (C, r, r), if this is the turn of a shuffle."""
    if turn.target is not aten.permute.default or [int(d) for d in turn.args[1]] != _TURN:
        return None
    apart = turn.args[0]
    if apart.target not in _VIEWS or len(apart.users) != 1:
        return None
    conv = apart.args[0]
    if conv.target is not aten.conv2d.default or len(conv.users) != 1:
        return None
    plain = len(conv.args) < 7 or conv.args[6] == 1  # channels of groups stay in their groups
    sizes = apart.meta["val"].shape
    image = conv.meta["val"].shape
    whole = sizes[0] == image[0] and sizes[1] * sizes[2] * sizes[3] == image[1]
    return apart if plain and whole and tuple(sizes[4:]) == tuple(image[2:]) else None


def _write(graph: fx.Graph, apart: Node, turn: Node) -> None:
    conv = apart.args[0]
    n, c, down, across, h, w = (int(s) for s in apart.meta["val"].shape)
    with graph.inserting_before(conv):
        for place in (1, 2):
            if len(conv.args) > place and conv.args[place] is not None:
                conv.update_arg(place, _ordered(graph, conv.args[place], (c, down, across)))
    with graph.inserting_before(turn):
        view = add_call(graph, aten.view.default, apart, apart.args[0], [n, down, across, c, h, w])
        made = add_call(graph, aten.permute.default, turn, view, [0, 3, 4, 1, 5, 2])
    turn.replace_all_uses_with(made)


def _ordered(graph: fx.Graph, weight: Node, sizes: tuple[int, int, int]) -> Node:
    """Output channels (c, i, j) as (i, j, c)."""
    shape = [int(s) for s in weight.meta["val"].shape]
    rest = list(range(3, len(shape) + 2))
    view = add_call(graph, aten.view.default, weight, weight, [*sizes, *shape[1:]])
    turned = add_call(graph, aten.permute.default, weight, view, [1, 2, 0, *rest])
    return add_call(graph, aten.reshape.default, weight, turned, shape)
