"""Linear layers: bias into the matmul, transposes to flags."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.match import Match, Var, call, inherit, rewrite
from temper.graph.node import Node, is_node
from temper.options import Options

aten = torch.ops.aten

_MATMULS = (aten.mm.default, aten.matmul.default)


def fuse_linear(captured: Captured, options: Options) -> int:
    """matmul(x, w) + bias, with w from the model, to linear."""
    pattern = call(aten.add.Tensor, call(_MATMULS, Var("x"), Var("w"), name="mm"), Var("b"))

    def build(graph: fx.Graph, node: Node, found: Match) -> Node | None:
        w, b = found["w"].meta["val"], found["b"].meta["val"]
        if w.dim() != 2 or tuple(b.shape) != (w.shape[1],) or found["mm"].kwargs:
            return None
        if len({node.meta["val"].dtype, w.dtype, b.dtype}) != 1:
            return None
        turned = graph.call_function(aten.t.default, (found["w"],))
        inherit(turned, node, w.t())
        return graph.call_function(aten.linear.default, (found["x"], turned, found["b"]))

    return rewrite(captured.graph, pattern, build)


def fuse_transposes(captured: Captured, options: Options) -> int:
    """matmul(a, transpose(b)) reads b transposed instead of moving it."""
    hits = 0
    for node in list(captured.graph.nodes):
        if node.target not in (*_MATMULS, aten.bmm.default):
            continue
        if not node.meta["val"].is_floating_point():
            continue  # whole numbers are multiplied on the host, which reads no flags
        flags = [False, False]
        for index in (0, 1):
            source = node.args[index]
            if _swaps_last_two(source) and node.args[0].meta["val"].dim() >= 2:
                flags[index] = True
                node.update_arg(index, source.args[0])
                hits += 1
        if any(flags):
            node.meta["transposes"] = tuple(flags)
    captured.graph.eliminate_dead_code()
    return hits


def _swaps_last_two(node: Any) -> bool:
    if not is_node(node):
        return False
    rank = node.meta["val"].dim() if isinstance(node.meta.get("val"), torch.Tensor) else 0
    if rank < 2:
        return False
    if node.target is aten.t.default:
        return True
    last = [rank - 2, rank - 1]
    if node.target is aten.transpose.int:
        return sorted(int(d) % rank for d in node.args[1:3]) == last
    if node.target is aten.permute.default:
        dims = [int(d) % rank for d in node.args[1]]
        return dims == [*range(rank - 2), rank - 1, rank - 2]
    return False
