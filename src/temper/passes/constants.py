"""What depends on neither inputs nor weights is computed once, at compile time."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.node import Node, is_node
from temper.options import Options

_LIMIT_BYTES = 64 << 20  # larger results stay computed, not stored
_NUMBERS = frozenset({
    torch.ops.aten.add.Tensor, torch.ops.aten.sub.Tensor, torch.ops.aten.mul.Tensor,
    torch.ops.aten.div.Tensor,
})  # fmt: skip
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


def fold_constants(captured: Captured, options: Options) -> int:
    """Evaluate constant subgraphs (masks, positions) and bake single numbers into their users."""
    graph = captured.graph
    known: dict[Node, Any] = {}
    constant = captured.constants()
    with torch.no_grad():
        for node in graph.nodes:
            if node.op == "placeholder":
                if node.name in constant:
                    known[node] = constant[node.name].detach().cpu()
            elif node.op == "call_function" and _foldable(node, known):
                known[node] = _evaluate(node, known)
    hits = 0
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node not in known:
            hits += _bake_numbers(node, known) + _bake_run(node, known)
        elif isinstance(known[node], torch.Tensor) and any(u not in known for u in node.users):
            _replace(captured, node, known[node])
            hits += 1
    graph.eliminate_dead_code()
    _drop_unused(captured)
    return hits


def _foldable(node: Node, known: dict[Node, Any]) -> bool:
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return False
    if any(source not in known for source in node.all_input_nodes):
        return False
    val = node.meta.get("val")
    values = val if isinstance(val, (tuple, list)) else [val]
    return all(
        not isinstance(v, torch.Tensor) or v.numel() * v.element_size() <= _LIMIT_BYTES
        for v in values
    )


def _evaluate(node: Node, known: dict[Node, Any]) -> Any:
    args = fx.node.map_arg(node.args, lambda n: known[n])
    kwargs = dict(fx.node.map_arg(node.kwargs, lambda n: known[n]))
    if kwargs.get("device") is not None:
        kwargs["device"] = torch.device("cpu")
    # Clones that made a value contiguous are gone; a view of it may need a copy.
    target = torch.ops.aten.reshape.default if node.target in _VIEWS else node.target
    return target(*args, **kwargs)


def _bake_numbers(node: Node, known: dict[Node, Any]) -> int:
    """A 0-d constant beside a tensor acts as a number, in torch's promotion too."""
    if node.target not in _NUMBERS:
        return 0
    hits = 0
    for index in (0, 1):
        other, value = node.args[1 - index], known.get(node.args[index])
        if (
            isinstance(value, torch.Tensor)
            and value.dim() == 0
            and is_node(other)
            and other not in known
            and (index == 1 or node.target is not torch.ops.aten.sub.Tensor)
        ):
            if index == 0 and node.target is torch.ops.aten.div.Tensor:
                continue
            node.update_arg(index, value.item())
            if index == 0:
                node.args = (node.args[1], node.args[0], *node.args[2:])
            hits += 1
    return hits


def _bake_run(node: Node, known: dict[Node, Any]) -> int:
    """Indexing one dimension with constant neighbours, as in x[:, [-1]], is a slice."""
    if node.target is not torch.ops.aten.index.Tensor:
        return 0
    source, indices = node.args
    given = [(dim, known.get(index)) for dim, index in enumerate(indices) if index is not None]
    shape = source.meta["val"].shape
    if len(given) != 1:
        return 0
    dim, index = given[0]
    if not isinstance(index, torch.Tensor) or index.dim() != 1 or index.dtype is torch.bool:
        return 0
    size = int(shape[dim])
    rows = [int(row) % size for row in index]
    if not rows or rows != list(range(rows[0], rows[0] + len(rows))):
        return 0
    node.target = torch.ops.aten.slice.Tensor
    node.args = (source, dim, rows[0], rows[0] + len(rows))
    return 1


def _replace(captured: Captured, node: Node, value: torch.Tensor) -> None:
    placeholder = captured.constant(value, node.name)
    placeholder.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(placeholder)


def _drop_unused(captured: Captured) -> None:
    """Constants that only fed folded nodes."""
    used = {n.name: n for n in captured.graph.nodes if n.op == "placeholder"}
    for argument in list(captured.arguments):
        node = used.get(argument.node)
        if argument.role == "constant" and node is not None and not node.users:
            captured.graph.erase_node(node)
            captured.arguments.remove(argument)
            captured.weights.pop(argument.path, None)
