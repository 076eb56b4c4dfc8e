"""Embedding bags of equal length to lookups and a sum, which the chip has."""

from __future__ import annotations

import operator
from typing import Any

import torch

from temper.graph.captured import Captured
from temper.graph.match import inherit
from temper.graph.node import Node, is_node
from temper.options import Options

aten = torch.ops.aten

_BAGS = (aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
# Of the operator's arguments behind weight, indices and offsets: what this pass can take.
_REST = (("scale_grad_by_freq", None), ("mode", (0, 1)), ("sparse", None),
         ("per_sample_weights", (None,)), ("include_last_offset", (False,)),
         ("padding_idx", (-1,)))  # fmt: skip
_DEFAULTS: dict[str, Any] = {"mode": 0, "include_last_offset": False, "padding_idx": -1}


def open_bags(captured: Captured, options: Options) -> int:
    """Bags that are the rows of a matrix of indices; others stay the host's."""
    graph, constants, hits = captured.graph, captured.constants(), 0
    for node in list(graph.nodes):
        if node.target not in _BAGS or not _only_sums(node):
            continue
        given = dict(zip((name for name, _ in _REST), node.args[3:], strict=False)) | node.kwargs
        if any(allowed is not None and given.get(name, _DEFAULTS.get(name)) not in allowed
               for name, allowed in _REST):  # fmt: skip
            continue
        weight, indices, offsets = node.args[:3]
        length = _length(indices, constants.get(getattr(offsets, "name", "")))
        if not length:
            continue
        with graph.inserting_before(node):
            made = _sum(graph, node, weight, indices, length, bool(given.get("mode", 0)))
        for item in list(node.users):
            item.replace_all_uses_with(made)
            graph.erase_node(item)
        graph.erase_node(node)
        hits += 1
    return hits


def _only_sums(node: Node) -> bool:
    """Whether nothing but the first result is read."""
    return all(u.target is operator.getitem and u.args[1] == 0 for u in node.users)


def _length(indices: Any, offsets: torch.Tensor | None) -> int:
    """How many indices each bag has; 0 where that is not known or differs."""
    if offsets is None or not is_node(indices) or indices.meta["val"].dim() != 1:
        return 0
    count, bags = indices.meta["val"].numel(), offsets.numel()
    if not bags or not count or count % bags:
        return 0
    length = count // bags
    return length if torch.equal(offsets.cpu().long(), torch.arange(bags) * length) else 0


def _sum(graph: Any, node: Node, weight: Node, indices: Node, length: int, mean: bool) -> Node:
    table, held = weight.meta["val"], indices.meta["val"]

    def made(target: Any, args: tuple[Any, ...], val: torch.Tensor) -> Node:
        new: Node = graph.call_function(target, args)
        inherit(new, node, val)
        return new

    bags, width = held.numel() // length, table.shape[1]
    if length == 1:
        return made(aten.embedding.default, (weight, indices), table.new_empty(bags, width))
    ids = made(aten.view.default, (indices, [bags, length]), held.new_empty(bags, length))
    rows = made(aten.embedding.default, (weight, ids), table.new_empty(bags, length, width))
    joined = aten.mean.dim if mean else aten.sum.dim_IntList
    return made(joined, (rows, [1]), table.new_empty(bags, width))
