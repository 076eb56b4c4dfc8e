"""A small matcher for FX graphs: patterns are data, commutative ops match either way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from temper.graph.node import Node, is_node

aten = torch.ops.aten

CASTS = (aten._to_copy.default, aten.to.dtype)
COMMUTATIVE = frozenset({aten.add.Tensor, aten.mul.Tensor})


@dataclass(frozen=True)
class Var:
    """Any value; the same name must be the same node everywhere in a pattern."""

    name: str


@dataclass(frozen=True)
class Num:
    """A number: one value (compared to 1e-3 relative), or any when ``value`` is None."""

    value: float | None = None
    name: str = ""


@dataclass(frozen=True)
class CallPattern:
    """A call of one of these targets; arguments beyond those given are free."""

    targets: tuple[Any, ...]
    args: tuple[Any, ...]
    name: str = ""


@dataclass(frozen=True)
class Either:
    """Any of these patterns."""

    options: tuple[Any, ...]


@dataclass
class Match:
    """Bound names and the nodes that the pattern covered, root first."""

    bound: dict[str, Any] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def copy(self) -> Match:
        return Match(dict(self.bound), list(self.nodes))

    def __getitem__(self, name: str) -> Any:
        return self.bound[name]


def call(targets: Any, *args: Any, name: str = "") -> CallPattern:
    """A pattern for a call of one of these targets."""
    return CallPattern(targets if isinstance(targets, tuple) else (targets,), args, name)


def strip_casts(node: Any) -> Any:
    """The value behind float casts."""
    while is_node(node) and node.target in CASTS:
        node = node.args[0]
    return node


def match(node: Any, pattern: Any, state: Match | None = None) -> Match | None:
    """The bindings when ``node`` has the pattern's form; casts between ops are looked through."""
    return next(_matches(node, pattern, state or Match()), None)


def _matches(node: Any, pattern: Any, state: Match) -> Iterator[Match]:
    if isinstance(pattern, Either):
        for option in pattern.options:
            yield from _matches(node, option, state)
        return
    if isinstance(pattern, Num):
        if (
            isinstance(node, (int, float))
            and not isinstance(node, bool)
            and (pattern.value is None or math.isclose(node, pattern.value, rel_tol=1e-3))
        ):
            new = state.copy()
            if pattern.name:
                new.bound[pattern.name] = float(node)
            yield new
        return
    if isinstance(pattern, Var):
        if not is_node(node):
            return
        bound = state.bound.get(pattern.name)
        if bound is None:
            new = state.copy()
            new.bound[pattern.name] = node
            yield new
        elif bound is node or strip_casts(bound) is strip_casts(node):
            yield state
        return
    covered = []
    while is_node(node) and node.target in CASTS and node.target not in pattern.targets:
        covered.append(node)
        node = node.args[0]
    if not is_node(node) or node.target not in pattern.targets:
        return
    if len(node.args) < len(pattern.args):
        return
    orders = [node.args]
    if node.target in COMMUTATIVE and len(pattern.args) == 2:
        orders.append((node.args[1], node.args[0], *node.args[2:]))
    for order in orders:
        start = state.copy()
        start.nodes += [*covered, node]
        if pattern.name:
            start.bound[pattern.name] = node
        yield from _all(list(order), list(pattern.args), start)


def _all(args: list[Any], patterns: list[Any], state: Match) -> Iterator[Match]:
    if not patterns:
        yield state
        return
    for new in _matches(args[0], patterns[0], state):
        yield from _all(args[1:], patterns[1:], new)


def closed(found: Match, root: Node) -> bool:
    """Whether nobody outside the match reads an inner node of it."""
    inner = set(found.nodes) - {root}
    return all(user in inner or user is root for node in inner for user in node.users)


def rewrite(
    graph: fx.Graph, pattern: Any, build: Callable[[fx.Graph, fx.Node, Match], fx.Node | None]
) -> int:
    """Replace every closed match of the pattern by what ``build`` makes of it."""
    hits = 0
    for node in reversed(list(graph.nodes)):
        if node.op != "call_function" or not node.users:
            continue
        found = match(node, pattern)
        if found is None or found.nodes[0] is not node or not closed(found, node):
            continue
        with graph.inserting_before(node):
            new = build(graph, node, found)
        if new is None:
            continue
        inherit(new, node, node.meta["val"])
        node.replace_all_uses_with(new)
        hits += 1
    if hits:
        graph.eliminate_dead_code()
    return hits


def inherit(new: Node, old: Node, val: Any) -> None:
    """Give a new node the old one's origin and a value of its own."""
    for key in ("nn_module_stack", "stack_trace"):
        if key in old.meta and key not in new.meta:
            new.meta[key] = old.meta[key]
    new.meta["val"] = val


def add_call(graph: fx.Graph, target: Any, like: Node, *args: Any) -> Node:
    """A new call where the graph inserts, of another node's origin; its value is what the target
    makes of the arguments' values."""
    made = graph.call_function(target, args)
    values = fx.node.map_arg(args, lambda node: node.meta["val"])
    inherit(made, like, target(*values))
    return made


def cast_back(graph: fx.Graph, new: Node, old: Node) -> Node:
    """A cast to the dtype that the old node had, if the new one differs."""
    wanted = old.meta["val"].dtype
    if new.meta["val"].dtype == wanted:
        return new
    cast = graph.call_function(aten._to_copy.default, (new,), {"dtype": wanted})
    inherit(cast, old, old.meta["val"])
    return cast


def value_like(node: Node, dtype: torch.dtype) -> Any:
    """The node's fake value in another dtype."""
    return node.meta["val"].to(dtype)
