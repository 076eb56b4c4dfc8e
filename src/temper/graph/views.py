"""View ops of the graph as index maps, and index maps as view ops."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from temper.graph.match import add_call
from temper.graph.node import Node, is_node
from temper.program.index_map import IndexMap
from temper.program.index_moves import Move, moves
from temper.program.row_table import Chart

aten = torch.ops.aten

Read = Callable[[Node, Chart], Chart | None]
_LAST = 2**62


def _shape(node: Node) -> tuple[int, ...]:
    return tuple(int(s) for s in node.meta["val"].shape)


def _argument(node: Node, place: int, name: str, default: Any) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def _reshape(node: Node, chart: Chart) -> Chart | None:
    return chart.reshape(_shape(node))


def _permute(node: Node, chart: Chart) -> Chart | None:
    return chart.permute([int(d) for d in node.args[1]])


def _transpose(node: Node, chart: Chart) -> Chart | None:
    rank = len(chart.shape)
    order = list(range(rank))
    if rank > 1:
        swap = (0, 1) if node.target is aten.t.default else node.args[1:3]
        first, second = (int(d) % rank for d in swap)
        order[first], order[second] = second, first
    return chart.permute(order)


def _slice(node: Node, chart: Chart) -> Chart | None:
    dim = int(_argument(node, 1, "dim", 0)) % len(chart.shape)
    size = chart.shape[dim]
    start = _argument(node, 2, "start", None)
    stop = _argument(node, 3, "end", None)
    step = int(_argument(node, 4, "step", 1))
    bounds = slice(start, None if stop is None else min(int(stop), _LAST), step).indices(size)
    return chart.slice(dim, bounds[0], len(range(*bounds)), step)


def _select(node: Node, chart: Chart) -> Chart | None:
    dim = int(node.args[1]) % len(chart.shape)
    return chart.select(dim, int(node.args[2]) % chart.shape[dim])


def _expand(node: Node, chart: Chart) -> Chart | None:
    return chart.expand(_shape(node))


def _repeat(node: Node, chart: Chart) -> Chart | None:
    return chart.repeat([int(r) for r in node.args[1]])


def _flip(node: Node, chart: Chart) -> Chart | None:
    return chart.flip(int(d) for d in node.args[1])


def _part(node: Node, chart: Chart) -> Chart | None:
    """One result of a split, chunk or unbind."""
    whole = node.args[0]
    unbind = whole.target is aten.unbind.int
    dim = int(_argument(whole, 1 if unbind else 2, "dim", 0)) % len(chart.shape)
    if unbind:
        return chart.select(dim, int(node.args[1]) % chart.shape[dim])
    parts = [int(v.shape[dim]) for v in whole.meta["val"]]
    return chart.slice(dim, sum(parts[: node.args[1]]), parts[node.args[1]])


READERS: dict[Any, Read] = {
    **dict.fromkeys((
        aten.view.default, aten.reshape.default, aten._unsafe_view.default,
        aten.flatten.using_ints, aten.unflatten.int, aten.unsqueeze.default,
        aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
    ), _reshape),
    aten.permute.default: _permute,
    aten.transpose.int: _transpose,
    aten.t.default: _transpose,
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.expand.default: _expand,
    aten.repeat.default: _repeat,
    aten.flip.default: _flip,
}  # fmt: skip
SPLITS = (
    aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int,
)  # fmt: skip


def source_of_view(node: Node) -> Node | None:
    """The value that a view op shows, None for any other op."""
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
        return None
    if node.target in READERS:
        source = node.args[0]
    elif node.target is operator.getitem and node.args[0].target in SPLITS:
        source = node.args[0].args[0]
    else:
        return None
    value = source.meta.get("val") if is_node(source) else None
    plain = isinstance(value, torch.Tensor) and not value.is_complex() and value.numel() > 0
    return source if plain and node.meta["val"].numel() else None


def read(node: Node, chart: Chart) -> Chart | None:
    """The map of a view op, given that of what it shows; None where no steps could do it."""
    reader = READERS.get(node.target, _part)
    made = reader(node, chart)
    if isinstance(made, IndexMap) and moves(made) is None:
        return None
    return made


def write(graph: fx.Graph, base: Node, steps: Sequence[Move], like: Node) -> Node:
    """The moves as view ops behind ``base``, in front of where the graph inserts."""
    node = base
    for step in steps:
        before = _shape(node)
        if step.kind == "slice":
            for dim, (begin, size) in enumerate(zip(step.values, step.shape, strict=True)):
                if size != before[dim]:
                    args = (dim, begin, begin + size)
                    node = add_call(graph, aten.slice.Tensor, like, node, *args)
            continue
        target, values = {
            "reshape": (aten.reshape.default, step.shape),
            "permute": (aten.permute.default, step.values),
            "flip": (aten.flip.default, step.values),
            "repeat": (aten.repeat.default, step.values),
        }[step.kind]
        node = add_call(graph, target, like, node, list(values))
    return node
