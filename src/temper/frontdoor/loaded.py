"""A compiled graph on a target: first call, trace capture, replay, changed weights."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from temper import clock
from temper.capture.watch import WeightWatch
from temper.compiler.export import export
from temper.compiler.pipeline import Built
from temper.cost import ProgramCost, estimate
from temper.frontdoor.environment import start_from_environment
from temper.frontdoor.profiled import CONST_EVAL, LOAD, CallRecorder
from temper.program.trace_size import check_region, trace_bytes
from temper.record import recorder
from temper.targets.choose import choose
from temper.targets.protocol import Load, LoadedProgram, Phase, State, phase_of
from temper.targets.virtual.program_cache import PROGRAM_CACHE
from temper.torch_device.device import host_view, is_tt, wrap

start_from_environment()

# Every graph that is alive in this process, for temper.stats().
_LOADED: list[weakref.ref[LoadedGraph]] = []


def loaded_graphs() -> list[LoadedGraph]:
    """The graphs that are still in use, oldest first."""
    alive = [(ref, ref()) for ref in _LOADED]
    _LOADED[:] = [ref for ref, graph in alive if graph is not None]
    return [graph for _, graph in alive if graph is not None]


class Kept:
    """Graphs that somebody else keeps alive, oldest first, and how many there were."""

    def __init__(self) -> None:
        self.count = 0
        self._graphs: list[weakref.ref[LoadedGraph]] = []

    def add(self, graph: LoadedGraph) -> None:
        """Remember a graph for as long as it is in use."""
        self.count += 1
        self._graphs = [ref for ref in self._graphs if ref() is not None]
        self._graphs.append(weakref.ref(graph))

    def alive(self) -> list[LoadedGraph]:
        """Those that are still in use."""
        return [graph for graph in (ref() for ref in self._graphs) if graph is not None]


@dataclass
class CallStats:
    """What one loaded graph did so far."""

    calls: int = 0
    replays: int = 0
    weight_updates: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    trace_bytes: int = 0
    device_ns: float = 0.0  # all calls; modelled or measured as the target says
    wall_ns: int = 0  # measured on this host, all calls
    first_call_wall_ns: int = 0
    stages: dict[str, float] = field(default_factory=dict)


class LoadedGraph:
    """Runs one compiled graph; calls are safe from several threads."""

    def __init__(self, built: Built, index: int = 0, state: State | None = None) -> None:
        self.built = built
        self.state = State() if state is None else state  # what the program changes, by name
        self.program = built.program
        self.stats = CallStats(stages=dict(built.stages))
        options = built.options
        self._trace: bool = options["enable_trace"]
        self._cached: bool = options["enable_program_cache"]
        if self._trace:
            self.stats.trace_bytes = trace_bytes(self.program)
            check_region(self.program, options["trace_region_size"])
        self._costs: dict[bool, ProgramCost] = {}
        self._lock = threading.Lock()
        self._running: LoadedProgram | None = None
        self.target = choose(options)
        self._recorder = CallRecorder(built, self.target.timing)
        self._index = index
        export(self.program, built.weights, options, index)
        self._watch(built.weights)
        self._outputs = self._output_plan()
        _LOADED.append(weakref.ref(self))

    # --- costs --------------------------------------------------------------------------------

    def cost(self, *, traced: bool | None = None) -> ProgramCost:
        """Modelled time of one steady call, as this graph runs."""
        key = self._trace if traced is None else traced
        if key not in self._costs:
            self._costs[key] = estimate(self.program, traced=key)
        return self._costs[key]

    # --- weights ------------------------------------------------------------------------------

    def _watch(self, weights: dict[str, torch.Tensor]) -> None:
        """Remember the state of every weight, so that a change is noticed."""
        paths = dict.fromkeys(self.program.weights.values())
        self._weights = {path: weights[path] for path in paths}
        self._watched = WeightWatch(self._weights.values())

    def replace_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Other tensors for some weights; their values are read at the next call."""
        with self._lock:
            self._watch({**self._weights, **weights})
            if self._running is not None:
                self._running.set_weights(_host(self._weights))
                self.stats.weight_updates += 1

    def release_weights(self, paths: Iterable[str]) -> None:
        """Give these weights and the device's memory back: the model is gone.

        The program stays, for another model of the same class; its calls start over.
        """
        with self._lock:
            if self._running is not None:
                self._running.close()
            self._running = None
            for path in paths:
                self._weights.pop(path, None)
                self.built.captured.weights.pop(path, None)
            self._watched = WeightWatch(())
            self.stats = CallStats(stages=dict(self.built.stages))

    def reload_weights(self) -> None:
        """Read every weight again at the next call, whether a change was seen or not."""
        self.replace_weights({})

    # --- calls --------------------------------------------------------------------------------

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """One call with the graph's tensor inputs; outputs in the graph's order and dtypes."""
        with clock.simulating:
            return self._run(inputs)

    def _run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        started = time.perf_counter_ns()
        if any(is_tt(t) for t in inputs):
            inputs = [host_view(t) if is_tt(t) else t for t in inputs]
        first = self.stats.calls == 0
        running = self._ready() if first or self._watched.changed() else self._running
        assert running is not None
        phase = phase_of(self.stats.calls, traced=self._trace)
        if first and self.built.options["backend"] == "codegen_py":
            self._write_script(inputs)
        dry = self.built.options["dry_run"]
        outputs = self._zeros() if dry else running.run(inputs, phase)
        self._account(started, running.cost(phase), phase)
        return [wrap(o) if on_tt else o for o, on_tt in zip(outputs, self._on_tt, strict=True)]

    def _ready(self) -> LoadedProgram:
        """First call: upload and const-eval. Later: new values of changed weights."""
        with self._lock:
            if self._running is None:
                started = time.perf_counter()
                self._running = self.target.load(
                    Load(
                        self.program,
                        _host(self._weights),
                        self._dtypes,
                        self.built.options,
                        exact_accumulation=bool(self.built.options["exact_accumulation"]),
                        state=self.state,
                    )
                )
                self.stats.stages[LOAD] = time.perf_counter() - started
                started = time.perf_counter()
                self._running.prepare()
                self.stats.stages[CONST_EVAL] = time.perf_counter() - started
                hits, misses = (
                    PROGRAM_CACHE.touch(self.program)
                    if self._cached
                    else (0, len(self.program.ops))
                )
                self.stats.cache_hits += hits
                self.stats.cache_misses += misses
            elif self._watched.changed():
                self._running.set_weights(_host(self._weights))
                self.stats.weight_updates += 1
                self._watched = WeightWatch(self._weights.values())
            return self._running

    def _account(self, started: int, cost: ProgramCost, phase: Phase) -> None:
        """Advance the device clock and the statistics, and tell the profiler."""
        stats = self.stats
        stats.calls += 1
        first, replayed = phase == "first", phase == "replay"
        ended = time.perf_counter_ns()
        if first:
            stats.first_call_wall_ns = ended - started
        else:
            stats.cache_hits += len(self.program.ops) if self._cached else 0
        stats.replays += replayed
        device_ns = cost.first_call_ns if first else cost.call_ns
        stats.device_ns += device_ns
        stats.wall_ns += ended - started
        clock.advance(device_ns * clock.drawn(cost.call_ns, cost.call_low_ns, cost.call_high_ns))
        active = recorder.ACTIVE
        if active is not None:
            replay = stats.replays if replayed else 0
            once = {k: stats.stages[k] for k in (LOAD, CONST_EVAL) if first and k in stats.stages}
            self._recorder.record(
                active, cost, started, ended, first=first, replay=replay, once=once
            )

    def _write_script(self, inputs: Sequence[torch.Tensor]) -> None:
        """The graph as a script of ttnn calls, with the inputs of its first call."""
        from temper.targets.ttnn.emit import emit  # needed by few, at one call

        options = self.built.options
        name = f"{options['export_model_name'] or self.program.name}_g{self._index}.py"
        emit(self.program, _host(self._weights), options, Path(options["export_path"]), inputs,
             file=name)  # fmt: skip

    # --- outputs ------------------------------------------------------------------------------

    def _output_plan(self) -> list[int]:
        """For each result of the graph that is a value: its place among the program's outputs."""
        node = next(n for n in reversed(self.built.captured.graph.nodes) if n.op == "output")
        places: list[int] = []
        self._dtypes: list[torch.dtype] = []
        self._on_tt: list[bool] = []
        for index, argument in enumerate(node.args[0]):
            value = getattr(argument, "meta", {}).get("val")
            if index in self.built.captured.state_outputs:
                value = None
            places.append(len(self._dtypes) if isinstance(value, torch.Tensor) else -1)
            if isinstance(value, torch.Tensor):
                self._dtypes.append(value.dtype)
                self._on_tt.append(value.device.type == "tt")
        return places

    def _zeros(self) -> list[torch.Tensor]:
        shapes = [self.program.spec(n).shape for n in self.program.outputs]
        return [
            torch.zeros(shape[:-1] if dtype.is_complex else shape, dtype=dtype)
            for shape, dtype in zip(shapes, self._dtypes, strict=True)
        ]

    def results(self, outputs: list[torch.Tensor], inputs: Sequence[Any]) -> list[Any]:
        """The user's outputs in order; changed inputs and buffers are written back."""
        captured = self.built.captured
        for index, role, target in captured.mutations:
            value = outputs[self._outputs[index]]
            with torch.no_grad():
                if role == "input":
                    inputs[target].copy_(value)
                else:
                    captured.weights[target].copy_(value)
        made: list[Any] = []
        for kind, what in captured.outputs:
            if kind == "value":
                made.append(outputs[self._outputs[what]])
            else:
                made.append(inputs[what] if kind == "input" else what)
        return made


def _host(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights as host tensors; those on the device "tt" share their bytes."""
    return {p: (host_view(t) if is_tt(t) else t).detach() for p, t in weights.items()}
