"""Linear layers: bias into the matmul, projections of one input into one, transposes to flags."""

from __future__ import annotations

import operator
from collections import defaultdict
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


def merge_linears(captured: Captured, options: Options) -> int:
    """Query, key and value projections that read one input become one matmul and slices.

    Only where all three are split into heads afterwards and their weights have one format.
    """
    graph = captured.graph
    groups: dict[Node, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.target is aten.linear.default and _feeds_heads(node):
            groups[node.args[0]].append(node)
    hits = 0
    for source, nodes in groups.items():
        if len(nodes) != 3 or len({_signature(n) for n in nodes}) != 1:
            continue
        if len({n.args[1] for n in nodes}) != 3:
            continue
        _merge(graph, source, nodes)
        hits += 1
    graph.eliminate_dead_code()
    return hits


def _feeds_heads(node: Node) -> bool:
    """linear -> view (B, S, heads, d) -> transpose(1, 2), and nothing else."""
    if len(node.users) != 1 or node.meta["val"].dim() != 3:
        return False
    view = next(iter(node.users))
    if view.target not in (aten.view.default, aten.reshape.default) or view.meta["val"].dim() != 4:
        return False
    return all(
        u.target is aten.transpose.int and sorted(d % 4 for d in u.args[1:3]) == [1, 2]
        for u in view.users
    )


def _signature(node: Node) -> tuple[Any, ...]:
    bias = len(node.args) > 2 and node.args[2] is not None
    fmt = (node.meta.get("weight_format") or {}).get("format")
    return bias, fmt, node.meta["val"].dtype


def _merge(graph: fx.Graph, source: Node, nodes: list[Node]) -> None:
    first = nodes[0]
    sizes = [n.args[1].meta["val"].shape[0] for n in nodes]

    def cat(index: int) -> Node:
        parts = [n.args[index] for n in nodes]
        new = graph.call_function(aten.cat.default, (parts, 0))
        inherit(new, first, torch.cat([p.meta["val"] for p in parts], 0))
        return new

    # Weights are placeholders or come from constants alone; only overrides may stand later.
    with graph.inserting_before(first):
        args = [source, cat(1)]
        if len(first.args) > 2 and first.args[2] is not None:
            args.append(cat(2))
        wide = graph.call_function(aten.linear.default, tuple(args))
        shape = (*first.meta["val"].shape[:-1], sum(sizes))
        inherit(wide, first, first.meta["val"].new_empty(shape))
        if "weight_format" in first.meta:
            wide.meta["weight_format"] = first.meta["weight_format"]
        split = graph.call_function(aten.split_with_sizes.default, (wide, sizes, -1))
        inherit(split, first, tuple(n.meta["val"] for n in nodes))
    for index, node in enumerate(nodes):
        with graph.inserting_after(split):
            part = graph.call_function(operator.getitem, (split, index))
        inherit(part, node, node.meta["val"])
        node.replace_all_uses_with(part)


def fuse_transposes(captured: Captured, options: Options) -> int:
    """matmul(a, transpose(b)) reads b transposed instead of moving it."""
    hits = 0
    for node in list(captured.graph.nodes):
        if node.target not in (*_MATMULS, aten.bmm.default):
            continue
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
