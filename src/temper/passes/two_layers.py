"""A linear layer over columns from several places, taken apart: joining them would move them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from temper.graph.match import add_call
from temper.graph.node import Node

aten = torch.ops.aten


def columns_of(node: Node) -> list[Node] | None:
    """The parts of a concatenation along the last axis, None for any other op."""
    if node.target is not aten.cat.default:
        return None
    dim = int(node.args[1]) if len(node.args) > 1 else int(node.kwargs.get("dim", 0))
    rank = node.meta["val"].dim()
    return list(node.args[0]) if dim % rank == rank - 1 else None


def weight_part(graph: fx.Graph, layer: Node, first: int, last: int) -> Node:
    """The columns of a layer's weight from ``first`` to ``last``."""
    return add_call(graph, aten.slice.Tensor, layer, layer.args[1], 1, first, last)


def as_two_layers(
    graph: fx.Graph, layer: Node, span: tuple[int, int], source: Node, weight: Node,
    rest: Sequence[Node],
) -> None:  # fmt: skip
    """In a layer's place one of ``source`` and ``weight``, and one of all columns but ``span``.

    ``rest`` are the values of those columns; the graph inserts in front of the layer.
    """
    bias = [a for a in layer.args[2:] if a is not None]
    made = add_call(graph, aten.linear.default, layer, source, weight, *bias)
    if rest:
        end = int(layer.args[1].meta["val"].shape[1])
        spans = [(a, b) for a, b in ((0, span[0]), (span[1], end)) if b > a]
        others = _joined(graph, layer, [weight_part(graph, layer, a, b) for a, b in spans])
        beside = _joined(graph, layer, rest)
        beside = add_call(graph, aten.linear.default, layer, beside, others)
        made = add_call(graph, aten.add.Tensor, layer, made, beside)
    layer.replace_all_uses_with(made)


def _joined(graph: fx.Graph, like: Node, parts: Sequence[Node]) -> Node:
    if len(parts) == 1:
        return parts[0]
    return add_call(graph, aten.cat.default, like, list(parts), 1)
