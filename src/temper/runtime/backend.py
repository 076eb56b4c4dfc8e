"""The torch.compile backend "tt": each Dynamo graph runs on the virtual chip."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from temper.frontend.capture import capture_fx
from temper.frontend.pipeline import build
from temper.options import Options, resolve
from temper.runtime.loaded import LoadedGraph, loaded_graphs

Runner = Callable[..., Any]


def tt(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    **_: Any,
) -> Runner:
    """Entry point of ``torch.compile(model, backend="tt", options={...})``."""
    return make_backend(resolve(options))(module, example_inputs)


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
        self._by_shape: dict[Any, _Specialised] = {}

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        key = tuple((t.shape, t.dtype) if isinstance(t, torch.Tensor) else t for t in inputs)
        entry = self._by_shape.get(key)
        if entry is None:
            entry = self._by_shape[key] = self._compile(inputs)
        return entry(inputs)

    def _compile(self, inputs: Sequence[Any]) -> _Specialised:
        started = time.perf_counter()
        captured = capture_fx(self._module, inputs, self._name)
        built = build(captured, self._options, cached=True)
        rest = time.perf_counter() - started - sum(built.stages.values())
        built.stages = {"capture": rest, **built.stages}
        graph = LoadedGraph(built, self._index)
        if self._keep is not None:
            self._keep.append(graph)
        return _Specialised(graph)


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
