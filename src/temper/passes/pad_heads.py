"""Heads whose width is no whole number of tiles: padded by zeros in the weights around attention.

The chip's heads ops and its attention take heads of whole tiles. Zero columns of query and key add
nothing to a score, zero columns of value make zero columns of the result, and the projection behind
reads those with zero weights. So the padding costs no op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt

import torch
from torch import fx

from temper.graph.fused import concat_heads
from temper.graph.match import inherit
from temper.graph.node import Node
from temper.program.tensor import TILE, round_up

aten = torch.ops.aten


@dataclass(frozen=True)
class Padded:
    """An attention between weights that can take up the padding."""

    attention: Node
    concat: Node
    projection: Node


def between_weights(parts: Sequence[Node]) -> Padded | None:
    """The attention that alone reads these three, if a linear layer alone reads its result."""
    readers = {user for part in parts for user in part.users}
    if len(parts) != 3 or len(readers) != 1:
        return None
    attention = readers.pop()
    if attention.target is not aten.scaled_dot_product_attention.default:
        return None
    if set(attention.args[:3]) != set(parts) or len(attention.users) != 1:
        return None
    concat = next(iter(attention.users))
    if concat.target is not concat_heads or len(concat.users) != 1:
        return None
    projection = next(iter(concat.users))
    if projection.target is not aten.linear.default or projection.args[0] is not concat:
        return None
    return Padded(attention, concat, projection)


def widen(graph: fx.Graph, found: Padded, width: int) -> None:
    """Let attention and the layers behind it work on padded heads."""
    attention, concat, projection = found.attention, found.concat, found.projection
    if attention.kwargs.get("scale") is None:
        attention.kwargs = {**attention.kwargs, "scale": 1 / sqrt(width)}
    value = attention.meta["val"]
    heads = int(value.shape[1])
    attention.meta["val"] = value.new_empty((*value.shape[:-1], round_up(width, TILE)))
    concat.meta["val"] = concat_heads(attention.meta["val"])
    weight = projection.args[1]
    with graph.inserting_before(projection):
        projection.update_arg(1, padded(graph, weight, heads, width, dim=1))


def padded(graph: fx.Graph, weight: Node, heads: int, width: int, *, dim: int) -> Node:
    """A weight whose axis ``dim`` counts heads of ``width``, with zeros behind each head."""
    shape = [int(s) for s in weight.meta["val"].shape]
    wide = round_up(width, TILE)
    inner = len(shape) - dim - 1
    steps = [
        (aten.reshape.default, [[*shape[:dim], heads, width, *shape[dim + 1 :]]]),
        (aten.constant_pad_nd.default, [[0, 0] * inner + [0, wide - width]]),
        (aten.reshape.default, [[*shape[:dim], heads * wide, *shape[dim + 1 :]]]),
    ]
    node = weight
    for target, args in steps:
        before = node
        node = graph.call_function(target, (before, *args))
        inherit(node, weight, target(before.meta["val"], *args))
    assert prod(node.meta["val"].shape) * width == prod(shape) * wide
    return node
