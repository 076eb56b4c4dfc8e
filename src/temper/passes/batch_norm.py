"""Batch norm in evaluation folded into the weights of the convolution or linear before it."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.match import inherit
from temper.graph.node import Node, is_node
from temper.options import Options

aten = torch.ops.aten

_BATCH_NORM = (aten._native_batch_norm_legit_no_training.default,)
_VIEWS = (aten.view.default, aten.reshape.default, aten.flatten.using_ints)
_CONVOLUTIONS = (aten.conv2d.default, aten.conv1d.default, aten.conv2d.padding)


def fold_batch_norm(captured: Captured, options: Options) -> int:
    """w' = w * g, b' = (b - mean) * g + beta with g = gamma / sqrt(var + eps)."""
    graph = captured.graph
    hits = 0
    for node in list(graph.nodes):
        if node.target not in _BATCH_NORM:
            continue
        shown = node.args[0]
        conv = _source(shown) if is_node(shown) else None
        if conv is None:
            continue
        used = [u for u in node.users if u.users]
        if any(u.target is not operator.getitem or u.args[1] != 0 for u in used):
            continue
        _fold(graph, node, conv)
        for user in used:
            user.replace_all_uses_with(shown)
        hits += 1
    graph.eliminate_dead_code()
    return hits


def _source(shown: Node) -> Node | None:
    """The convolution or linear layer whose channels are normalised; nobody else reads it.

    Rows of a linear layer may be regrouped on the way, as a norm over (N, C) asks for.
    """
    if shown.target in _CONVOLUTIONS:
        return shown if len(shown.users) == 1 else None
    made = shown
    while made.target in _VIEWS and len(made.users) == 1:
        if made.meta["val"].shape[-1] != made.args[0].meta["val"].shape[-1]:
            return None
        made = made.args[0]
    rows = shown.meta["val"].dim() == 2 and made.target is aten.linear.default
    return made if rows and len(made.users) == 1 else None


def _fold(graph: fx.Graph, node: Node, conv: Node) -> None:
    _, gamma, beta, mean, var, _, eps = node.args
    weight = conv.args[1]
    bias = conv.args[2] if len(conv.args) > 2 else conv.kwargs.get("bias")

    def emit(target: Any, *args: Any, **kwargs: Any) -> Node:
        fakes = fx.node.map_arg(args, lambda n: n.meta["val"])
        new = graph.call_function(target, args, kwargs)
        inherit(new, node, target(*fakes, **kwargs))
        return new

    # In float32: the folded weight is rounded once, to its own dtype.
    with graph.inserting_before(conv):

        def wide(value: Any) -> Node:
            return emit(aten._to_copy.default, value, dtype=torch.float32)

        gain = emit(aten.rsqrt.default, emit(aten.add.Tensor, wide(var), float(eps)))
        if gamma is not None:
            gain = emit(aten.mul.Tensor, gain, wide(gamma))
        rank = weight.meta["val"].dim()
        column = emit(aten.view.default, gain, [-1] + [1] * (rank - 1))
        dtype = weight.meta["val"].dtype
        new_weight = emit(
            aten._to_copy.default, emit(aten.mul.Tensor, wide(weight), column), dtype=dtype
        )
        shift = wide(mean) if bias is None else emit(aten.sub.Tensor, wide(mean), wide(bias))
        shift = emit(aten.neg.default, emit(aten.mul.Tensor, shift, gain))
        if beta is not None:
            shift = emit(aten.add.Tensor, shift, wide(beta))
        new_bias = emit(aten._to_copy.default, shift, dtype=dtype)
    args = list(conv.args)
    args[1] = new_weight
    if len(args) > 2:
        args[2] = new_bias
        conv.args = tuple(args)
    else:
        conv.args = (*args, new_bias)
