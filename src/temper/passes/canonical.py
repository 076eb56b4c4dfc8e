"""Identities and duplicate computations out of the graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.node import Node, is_node
from temper.options import Options

aten = torch.ops.aten

_IDENTITY = frozenset({
    aten.clone.default, aten.detach.default, aten.alias.default, aten.contiguous.default,
    aten.lift_fresh_copy.default,
})  # fmt: skip
# Checks that capture has made already: shapes and dtypes are fixed.
_CHECKS = frozenset({
    aten._assert_tensor_metadata.default, aten._assert_async.msg, aten._assert_scalar.default,
    aten.sym_constrain_range_for_size.default, aten.sym_constrain_range.default,
})  # fmt: skip
_CASTS = frozenset({aten._to_copy.default, aten.to.dtype})
_VIEWS = frozenset({
    aten.view.default, aten.reshape.default, aten.expand.default, aten._unsafe_view.default,
})  # fmt: skip
_BROADCASTING = frozenset({
    aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.where.self,
    aten.maximum.default, aten.minimum.default,
})  # fmt: skip


def canonicalise(captured: Captured, options: Options) -> int:
    """Drop clones, casts to the same dtype, views to the same shape; share equal nodes."""
    graph = captured.graph
    hits = 0
    seen: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in _CHECKS:
            graph.erase_node(node)
            continue
        source = _same_as(node)
        if source is None and not _random(node):
            key = _key(node)
            source = seen.setdefault(key, node) if key is not None else None
            source = None if source is node else source
        if source is not None:
            node.replace_all_uses_with(source)
            graph.erase_node(node)
            hits += 1
        elif options["enable_fusing"]:
            hits += _drop_expands(node)
    graph.eliminate_dead_code()
    return hits


def _same_as(node: Node) -> Node | None:
    """The argument that this node only repeats, if it does."""
    source: Node = node.args[0] if node.args else None
    if not is_node(source):
        return None
    if node.target in _IDENTITY:
        return source
    if node.target is aten.dropout.default and not (node.args[2] and node.args[1]):
        return source
    before, after = source.meta.get("val"), node.meta.get("val")
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return None
    if node.target in _CASTS and before.dtype == after.dtype:
        return source
    if node.target in _VIEWS and before.shape == after.shape:
        return source
    return None


def _random(node: Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def _key(node: Node) -> Any:
    try:
        key = (node.target, _freeze(node.args), _freeze(node.kwargs))
        hash(key)
    except TypeError:
        return None
    return key


def _freeze(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(v) for v in value)
    if isinstance(value, dict):
        return tuple(sorted((k, _freeze(v)) for k, v in value.items()))
    if isinstance(value, (int, float)):
        return (type(value), value, str(value))  # 1, 1.0 and True differ; so do 0.0 and -0.0
    return value


def _drop_expands(node: Node) -> int:
    """Elementwise ops broadcast by themselves: an expand before one is needless."""
    if node.target not in _BROADCASTING:
        return 0
    hits = 0
    shape = node.meta["val"].shape
    for index, argument in enumerate(node.args):
        if not (is_node(argument) and argument.target is aten.expand.default):
            continue
        source = argument.args[0]
        others = [a.meta["val"].shape for i, a in enumerate(node.args) if i != index and is_node(a)]
        joint = torch.broadcast_shapes(source.meta["val"].shape, *others)  # type: ignore[no-untyped-call]
        if joint == shape:
            node.update_arg(index, source)
            hits += 1
    return hits
