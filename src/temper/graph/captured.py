"""A captured model: a functional graph of ATen ops, its inputs' roles, its outputs' meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import fx

from temper.graph.ranges import Range
from temper.weights.report import WeightFormatEntry

Role = Literal["weight", "constant", "input", "state"]


@dataclass
class Argument:
    """One placeholder of the graph: a weight of the model, a baked constant, a user input, or a
    tensor that the graph changes and that stays on the device."""

    node: str  # name of the placeholder
    role: Role
    path: str = ""  # parameter path, for weights and constants; name of a state tensor
    position: int = -1  # index among the inputs of a call, for inputs (and lifted weights)


@dataclass
class Captured:
    """What capture hands to the passes. The graph is changed in place by them."""

    module: fx.GraphModule
    arguments: list[Argument]
    weights: dict[str, torch.Tensor]  # by path, constants included
    name: str = "main"
    # Each output: ("value", index of graph output) | ("input", position) | ("const", object)
    outputs: list[tuple[str, Any]] = field(default_factory=list)
    # Graph outputs to copy back: (graph output index, role, path or input position)
    mutations: list[tuple[int, str, Any]] = field(default_factory=list)
    # Graph outputs that are what became of a state tensor: written in place, handed to nobody
    state_outputs: frozenset[int] = frozenset()
    # What int64 placeholders are assumed to hold, by name; None where nobody checks it
    ranges: dict[str, Range] | None = None
    call_site: tuple[str, int] = ("", 0)  # the user's line that called the model
    weight_report: list[WeightFormatEntry] = field(default_factory=list)
    unflatten: Callable[[list[Any]], Any] = lambda values: values

    @property
    def graph(self) -> fx.Graph:
        return self.module.graph

    def constants(self) -> dict[str, torch.Tensor]:
        """Baked values by the name of their placeholder."""
        return {a.node: self.weights[a.path] for a in self.arguments if a.role == "constant"}

    def is_fixed(self, node: fx.Node) -> bool:
        """Whether a value hangs on weights and constants alone, not on what a call is given."""
        fixed = {a.node for a in self.arguments if a.role in ("weight", "constant")}
        waiting, seen = [node], set()
        while waiting:
            current = waiting.pop()
            if current.op == "placeholder" and current.name not in fixed:
                return False
            if current not in seen:
                seen.add(current)
                waiting.extend(current.all_input_nodes)
        return True

    def fixed(self) -> frozenset[fx.Node]:
        """Every node that hangs on weights and constants alone."""
        given = {a.node for a in self.arguments if a.role in ("weight", "constant")}
        found: set[fx.Node] = set()
        for node in self.graph.nodes:
            known = node.op == "call_function" and found.issuperset(node.all_input_nodes)
            if known or (node.op == "placeholder" and node.name in given):
                found.add(node)
        return frozenset(found)

    def constant(self, value: torch.Tensor, name: str) -> fx.Node:
        """A new placeholder for a value that is known now."""
        with self.graph.inserting_before(next(iter(self.graph.nodes))):
            made = self.graph.placeholder(f"constant_{name}")
        path = f"constant.{made.name.removeprefix('constant_')}"
        self.arguments.insert(0, Argument(made.name, "constant", path))
        self.weights[path] = value.contiguous()
        made.meta["val"] = value
        return made

    @property
    def inputs(self) -> list[Argument]:
        return [a for a in self.arguments if a.role == "input"]
