"""The torch.compile backend "tt": each Dynamo graph runs on the virtual chip."""

from __future__ import annotations

import copy
import functools
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from temper.capture.capture import capture_fx
from temper.compiler.pipeline import build
from temper.errors import CompileError
from temper.frontdoor.language.optimized import watch_wrappers
from temper.frontdoor.loaded import LoadedGraph, loaded_graphs
from temper.options import Options, resolve

Runner = Callable[..., Any]


def tt(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    **_: Any,
) -> Runner:
    """Entry point of ``torch.compile(model, backend="tt", options={...})``."""
    _keep_dynamo_out()
    return make_backend(resolve(options))(module, example_inputs)


watch_wrappers(tt)


@functools.cache
def _keep_dynamo_out() -> None:
    """Kernels of the device are Python; Dynamo would compile those that run beside its graphs."""
    for name in ("device", "fallback", "kernels", "observer", "rnn", "storage", "ties"):
        torch._dynamo.trace_rules.add(f"temper.torch_device.{name}")


def make_backend(
    options: Options, keep: list[LoadedGraph] | None = None
) -> Callable[[torch.fx.GraphModule, Sequence[Any]], Runner]:
    """A Dynamo backend with these options; loaded graphs are added to ``keep``."""

    def backend(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Runner:
        return _Graph(module, options, len(loaded_graphs()), keep)

    return backend


class _Graph:
    """One Dynamo graph. Symbolic sizes are made concrete at call time: one program a shape."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        options: Options,
        index: int,
        keep: list[LoadedGraph] | None,
    ) -> None:
        self._module = module
        self._options = options
        self._index = index
        self._name = f"graph_g{index}"
        self._keep = keep
        self._numbers = _wrapped_numbers(module)
        self._by_shape: dict[Any, Callable[[Sequence[Any]], Any]] = {}
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Any:
        key = (
            *((t.shape, t.dtype) if isinstance(t, torch.Tensor) else t for t in inputs),
            *(float(inputs[position]) for position in self._numbers),
        )
        entry = self._by_shape.get(key)
        if entry is None:
            with self._lock:
                entry = self._by_shape.get(key)
                if entry is None:
                    entry = self._by_shape[key] = self._compile(inputs)
        return entry(inputs)

    def _compile(self, inputs: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
        started = time.perf_counter()
        module = _with_numbers(self._module, [float(inputs[p]) for p in self._numbers])
        try:
            captured = capture_fx(module, inputs, self._name)
        except CompileError as error:
            if not self._options["fallback"]:
                raise
            cause = error.details.get("cause", error.what)
            warnings.warn(
                f"{self._name} of the model runs in eager torch on the host: {cause}", stacklevel=2
            )
            return lambda given: self._module(*given)
        built = build(captured, self._options, cached=True)
        rest = time.perf_counter() - started - sum(built.stages.values())
        built.stages = {"capture": rest, **built.stages}
        graph = LoadedGraph(built, self._index)
        if self._keep is not None:
            self._keep.append(graph)
        return _Specialised(graph)


def _wrapped_numbers(module: torch.fx.GraphModule) -> dict[int, str]:
    """Placeholders, by position, that are a Python number which Dynamo passes as a tensor."""
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    return {
        position: node.name
        for position, node in enumerate(places)
        if node.users and all(_reads_number(user) for user in node.users)
    }


def _reads_number(node: torch.fx.Node) -> bool:
    return node.op == "call_method" and node.target == "item"


def _with_numbers(module: torch.fx.GraphModule, numbers: Sequence[float]) -> torch.fx.GraphModule:
    """The graph with those numbers written into it; they are part of the key of a program."""
    if not numbers:
        return module
    made = copy.copy(module)
    made.graph = copy.deepcopy(module.graph)
    places = [node for node in made.graph.nodes if node.op == "placeholder"]
    for position, number in zip(_wrapped_numbers(made), numbers, strict=True):
        for read in list(places[position].users):
            for reader in list(read.users):
                _write_number(reader, read, number)
            made.graph.erase_node(read)
    made.recompile()
    return made


def _write_number(node: torch.fx.Node, read: torch.fx.Node, number: float) -> None:
    def chosen(argument: torch.fx.Node) -> Any:
        return number if argument is read else argument

    node.args = torch.fx.map_arg(node.args, chosen)
    node.kwargs = torch.fx.map_arg(node.kwargs, chosen)


class _Specialised:
    """A loaded graph and which of Dynamo's inputs are weights and which the caller's."""

    def __init__(self, graph: LoadedGraph) -> None:
        self._graph = graph
        captured = graph.built.captured
        names = set(graph.program.inputs)
        self._positions = [a.position for a in captured.inputs if a.node in names]
        self._weights = [
            (a.position, a.path, captured.weights[a.path])
            for a in captured.arguments if a.role == "weight" and a.position >= 0
        ]  # fmt: skip

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        changed = {
            path: inputs[position]
            for position, path, seen in self._weights
            if inputs[position] is not seen
        }
        if changed:
            self._graph.replace_weights(changed)
            self._weights = [(p, path, inputs[p]) for p, path, _ in self._weights]
        outputs = self._graph.run([inputs[p] for p in self._positions])
        return tuple(self._graph.results(outputs, inputs))
