"""Python numbers that Dynamo passes to a graph: computed at each call, handed on as inputs.

A float argument that differs between calls, or one drawn by ``random``, reaches the graph as a
tensor of one value, read by ``.item()``. What Python computes from it alone is computed by Python.
The results go into arithmetic on tensors as inputs of the program; where an op wants a plain number
(a bound of clamp, a dropout rate) it is written into the program and is part of its key.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

_FUNCTIONS = {
    operator.add, operator.sub, operator.mul, operator.truediv,
    operator.iadd, operator.isub, operator.imul, operator.itruediv,
    torch.add, torch.sub, torch.mul, torch.div, torch.true_divide,
}  # fmt: skip
_METHODS = {"add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_"}


class Numbers:
    """The numbers of one Dynamo graph, and the graph that takes them as inputs."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self._positions = _wrapped(module)
        if not self._positions:
            return
        self.module = copy.copy(module)
        self.module.graph = copy.deepcopy(module.graph)
        nodes = list(self.module.graph.nodes)
        places = [node for node in nodes if node.op == "placeholder"]
        made = _computed(nodes, [places[p] for p in self._positions])
        readers = {n: [u for u in n.users if u not in made] for n in made}
        read = [n for n in made if readers[n]]
        self._compute = _program(places, self._positions, made, read)
        self._returned: dict[int, int] = {}  # place among the outputs: place in ``read``
        self._inputs: list[int] = []
        self._written: dict[int, str] = {}
        last = places[-1]
        for index, node in enumerate(read):
            if any(_takes_tensor(u, node) for u in readers[node]):
                with self.module.graph.inserting_after(last):
                    last = self.module.graph.placeholder(f"number_{index}")
                last.meta["example_value"] = torch.zeros(())
                self._inputs.append(index)
                for user in readers[node]:
                    if _takes_tensor(user, node):
                        user.replace_input_with(node, last)
            for user in list(node.users):
                if user.op == "output":
                    returned: Any = user.args[0]
                    self._returned |= {p: index for p, v in enumerate(returned) if v is node}
                    user.args = _with(user.args, node, None)
                elif user not in made:
                    self._written[index] = node.name
        self._erase(made)

    def _erase(self, made: Sequence[fx.Node]) -> None:
        for node in reversed(made):
            if not node.users:
                self.module.graph.erase_node(node)
        self.module.recompile()

    def __bool__(self) -> bool:
        return bool(self._positions)

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        """The numbers that the graph reads, for these inputs."""
        return list(self._compute(*(float(inputs[p]) for p in self._positions)))

    def tensors(self, values: Sequence[Any]) -> list[torch.Tensor]:
        """Those that are inputs of the program."""
        return [torch.tensor(values[i], dtype=torch.float32) for i in self._inputs]

    def key(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Those that are written into it; 0.0 is not -0.0 here."""
        return tuple(repr(values[i]) for i in self._written)

    def written(self, values: Sequence[Any]) -> fx.GraphModule:
        """The graph with those numbers in it."""
        if not self._written:
            return self.module
        made = copy.copy(self.module)
        made.graph = copy.deepcopy(self.module.graph)
        by_name = {node.name: node for node in made.graph.nodes}
        for index, name in self._written.items():
            node = by_name[name]
            for user in list(node.users):
                user.args = _with(user.args, node, values[index])
                user.kwargs = _with(user.kwargs, node, values[index])
        for node in reversed(list(made.graph.nodes)):
            if node.name in self._written.values() or _reads(node):
                made.graph.erase_node(node)
        made.recompile()
        return made

    def fill(self, outputs: list[Any], values: Sequence[Any]) -> None:
        """Put numbers that the graph returns into its outputs."""
        for place, index in self._returned.items():
            outputs[place] = values[index]


def _wrapped(module: fx.GraphModule) -> list[int]:
    """Positions of the placeholders that are a Python number in a tensor."""
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    return [p for p, node in enumerate(places) if node.users and all(map(_reads, node.users))]


def _reads(node: fx.Node) -> bool:
    return node.op == "call_method" and node.target == "item"


def _computed(nodes: Sequence[fx.Node], places: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes that are numbers made of those placeholders alone, in order."""
    made: dict[fx.Node, None] = {}
    for node in nodes:
        given = node.all_input_nodes
        if (_reads(node) and given[0] in places) or (
            node.op == "call_function"
            and given
            and all(g in made for g in given)
            and not isinstance(node.meta.get("example_value"), torch.Tensor)
        ):
            made[node] = None
    return list(made)


def _program(
    places: Sequence[fx.Node],
    positions: Sequence[int],
    made: Sequence[fx.Node],
    read: Sequence[fx.Node],
) -> fx.GraphModule:
    """What Python computes from the numbers: floats in, the numbers that are read out."""
    graph = fx.Graph()
    known = {places[p]: graph.placeholder(f"value_{p}") for p in positions}
    for node in made:
        if _reads(node):
            known[node] = known[node.all_input_nodes[0]]
        else:
            known[node] = graph.node_copy(node, known.__getitem__)
    graph.output(tuple(known[node] for node in read))
    return fx.GraphModule(torch.nn.Module(), graph)


def _takes_tensor(user: fx.Node, number: fx.Node) -> bool:
    """Whether an op means the same with a tensor of one value in the place of the number."""
    function = user.op == "call_function" and user.target in _FUNCTIONS
    method = user.op == "call_method" and user.target in _METHODS and user.args[0] is not number
    if not (function or method) or number in user.kwargs.values() or user.kwargs:
        return False
    others = [a.meta.get("example_value") for a in user.args if isinstance(a, fx.Node)]
    tensors = [o for o in others if isinstance(o, torch.Tensor)]
    return len(tensors) == 1 and tensors[0].dim() > 0 and tensors[0].dtype is not torch.float64


def _with(arguments: Any, node: fx.Node, number: Any) -> Any:
    return fx.map_arg(arguments, lambda given: number if given is node else given)
