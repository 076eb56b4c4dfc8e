"""The torch.compile backend "tt": each Dynamo graph runs on the virtual chip."""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch._dynamo.convert_frame import compile_lock

from temper import clock
from temper.capture.capture import capture_fx
from temper.capture.dynamo import settle_dynamo
from temper.capture.dynamo_memory import forget_old_compiles, in_own_context, when_gone
from temper.compiler.pipeline import build
from temper.errors import CompileError
from temper.frontdoor.aliases import View, may_alias, overlaps, views
from temper.frontdoor.gradients import differentiable, refuse_backward
from temper.frontdoor.language.optimized import watch_wrappers
from temper.frontdoor.loaded import Kept, LoadedGraph, loaded_graphs
from temper.frontdoor.numbers import Numbers
from temper.frontdoor.uncompiled import graph_calls, watch_first_calls
from temper.graph.captured import Captured
from temper.graph.ranges import CLASSES, Range, class_of, wide_nodes
from temper.options import Options, resolve
from temper.torch_device.device import host_view, is_tt

Runner = Callable[..., Any]

settle_dynamo()


def tt(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    **_: Any,
) -> Runner:
    """Entry point of ``torch.compile(model, backend="tt", options={...})``."""
    return make_backend(resolve(options))(module, example_inputs)


watch_first_calls(tt)
watch_wrappers(tt)


def make_backend(
    options: Options, keep: Kept | None = None
) -> Callable[[torch.fx.GraphModule, Sequence[Any]], Runner]:
    """A Dynamo backend with these options; loaded graphs are added to ``keep``."""

    def backend(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Runner:
        return _Graph(module, options, len(loaded_graphs()) if keep is None else keep.count, keep)

    return backend


# Programs of one Dynamo graph that are kept, one a shape; the least recently used goes first.
KEPT_PROGRAMS = 64


class _Graph:
    """One Dynamo graph. Symbolic sizes are made concrete at call time: one program a shape."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        options: Options,
        index: int,
        keep: Kept | None,
    ) -> None:
        self._numbers = Numbers(module)
        self._module = module
        self._options = options
        self._index = index
        self._name = f"graph_g{index}"
        self._keep = keep
        self._aliased = may_alias(module)
        self._ranged = False  # whether what integers hold decides where they are computed
        self._by_shape: dict[Any, _Program] = {}

    def __call__(self, *inputs: Any) -> Any:
        numbers = self._numbers.values(inputs) if self._numbers else None
        found = self._by_shape.get(self._key(inputs, numbers))
        if found is None:
            with clock.compiling, compile_lock:
                found = self._by_shape.get(self._key(inputs, numbers))
                if found is None:
                    found = in_own_context(self._compile, inputs, numbers)
                    forget_old_compiles()
                    self._by_shape[self._key(inputs, numbers)] = found
                    if len(self._by_shape) > KEPT_PROGRAMS:
                        oldest = min(self._by_shape, key=lambda k: self._by_shape[k].used)
                        del self._by_shape[oldest]
        found.used = next(graph_calls)
        with clock.simulating:
            if numbers is None:
                return tuple(found(inputs))
            made = found([*inputs, *self._numbers.tensors(numbers)])
            self._numbers.fill(made, numbers)
            return tuple(made)

    def _key(self, inputs: Sequence[Any], numbers: list[Any] | None) -> tuple[Any, ...]:
        """What a program holds for."""
        key = [(t.shape, t.dtype) if isinstance(t, torch.Tensor) else t for t in inputs]
        if numbers is not None:
            key += self._numbers.key(numbers)
        tensors = [t for t in inputs if isinstance(t, torch.Tensor)]
        if self._aliased:
            key += [t.stride() for t in tensors]
        if self._ranged:
            key += [
                class_of(host_view(t) if is_tt(t) else t) for t in tensors if t.dtype is torch.int64
            ]
        return tuple(key)

    def _compile(self, inputs: Sequence[Any], numbers: list[Any] | None) -> _Program:
        started = time.perf_counter()
        module = self._module
        if numbers is not None:
            module = self._numbers.written(numbers)
            inputs = [*inputs, *self._numbers.tensors(numbers)]
        try:
            captured = capture_fx(module, inputs, self._name)
        except CompileError as error:
            if not self._options["fallback"]:
                raise
            cause = error.details.get("cause", error.what)
            warnings.warn(
                f"{self._name} of the model runs in eager torch on the host: {cause}", stacklevel=2
            )
            return _Eager(module)
        captured.ranges = _ranges(captured, inputs)
        nodes = captured.graph.nodes
        narrow, widest = (dict.fromkeys(captured.ranges, c) for c in (CLASSES[0], CLASSES[-1]))
        self._ranged = wide_nodes(nodes, narrow) != wide_nodes(nodes, widest)
        built = build(captured, self._options, cached=True)
        rest = time.perf_counter() - started - sum(built.stages.values())
        built.stages = {"capture": rest, **built.stages}
        graph = LoadedGraph(built, self._index)
        if self._keep is not None:
            self._keep.add(graph)
        seen = views(module, inputs) if self._aliased else []
        return _Specialised(graph, module, inputs, seen)


def _ranges(captured: Captured, inputs: Sequence[Any]) -> dict[str, Range]:
    """The class of every int64 input, weight and constant of a graph."""
    found = {}
    for argument in captured.arguments:
        held = argument.position >= 0
        value = inputs[argument.position] if held else captured.weights.get(argument.path)
        if isinstance(value, torch.Tensor) and value.dtype is torch.int64:
            found[argument.node] = _class(value)
    return found


def _class(values: torch.Tensor) -> Range:
    return class_of(host_view(values) if is_tt(values) else values)


def _address(weight: torch.Tensor) -> int:
    """Where its values lie: ``weight.data = ...`` moves them under the same tensor."""
    return (host_view(weight) if is_tt(weight) else weight).data_ptr()


class _Program(Protocol):
    """What runs a Dynamo graph for one shape."""

    used: int

    def __call__(self, inputs: Sequence[Any]) -> list[Any]: ...


class _Eager:
    """A graph that could not be captured, in eager torch on the host."""

    used = 0

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self._module = module

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        return list(self._module(*inputs))


class _Specialised:
    """A loaded graph and which of Dynamo's inputs are weights and which the caller's."""

    used = 0

    def __init__(
        self,
        graph: LoadedGraph,
        module: torch.fx.GraphModule,
        inputs: Sequence[Any],
        views: Sequence[View],
    ) -> None:
        self._graph = graph
        self._module = module
        self._views = views
        # Two models of one class share this program: weights and run are one step.
        self._turn = threading.Lock()
        captured = graph.built.captured
        names = set(graph.program.inputs)
        self._positions = [a.position for a in captured.inputs if a.node in names]
        self._paths = {
            a.position: a.path
            for a in captured.arguments if a.role == "weight" and a.position >= 0
        }  # fmt: skip
        self._follow(inputs)
        self._changed = [target for _, role, target in captured.mutations if role == "input"]
        self._differentiable = differentiable(module)

    def _follow(self, inputs: Sequence[Any]) -> None:
        """Note whose weights lie on the device; they are given back when all of them are gone."""
        end = when_gone(self, _Specialised.release)
        self._weights = [
            (place, weakref.ref(inputs[place], end), _address(inputs[place]))
            for place in self._paths
        ]

    def release(self) -> None:
        """Give the weights back where no tensor of the model is left."""
        if self._weights and all(seen() is None for _, seen, _ in self._weights):
            self._graph.release_weights(self._paths.values())

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        if self._changed and overlaps(inputs, self._changed):
            return self._apart(inputs)
        with self._turn:
            changed = {
                self._paths[place]: inputs[place].detach()
                for place, seen, address in self._weights
                if seen() is not inputs[place] or _address(inputs[place]) != address
            }
            if changed:
                self._graph.replace_weights(changed)
                self._follow(inputs)
            outputs = self._graph.run([inputs[p] for p in self._positions])
        made = self._graph.results(outputs, inputs)
        for view in self._views:
            made[view.output] = view.of((inputs if view.of_input else made)[view.base])
        if self._differentiable:
            refuse_backward(made, self._differentiable)
        return made

    def _apart(self, inputs: Sequence[Any]) -> list[Any]:
        """Inputs that overlap while one is changed: order matters, and eager torch keeps it."""
        warnings.warn(
            f"{self._graph.program.name} ran in eager torch on the host for this call: it changes "
            "an input that shares memory with another one",
            stacklevel=2,
        )
        return list(self._module(*inputs))
