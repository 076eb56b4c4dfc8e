"""``temper.compile``: a model whose calls run on the virtual chip, without Dynamo's overhead."""

from __future__ import annotations

import functools
import threading
import time
import warnings
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from temper.capture.capture import capture
from temper.capture.watch import ModuleWatch
from temper.compiler.pipeline import build, own_errors
from temper.errors import CompileError, UsageError
from temper.frontdoor.language.detect import generative
from temper.frontdoor.loaded import LoadedGraph
from temper.options import Options, resolve


class Entry(Protocol):
    """What one kind of call runs, and whether the model has become another one since."""

    def __call__(self, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def stale(self) -> bool: ...


class CompiledModel:
    """Calls like the model it wraps; each new shape is compiled once.

    The whole model is captured as one graph. Where Python control flow forbids that, Dynamo
    splits it, and the parts run on the chip.
    """

    def __init__(self, model: torch.nn.Module, options: Options) -> None:
        self._model = model
        self._entries: dict[Any, Entry] = {}
        self._split: _Split | None = None
        self._lock = threading.RLock()
        self.options = options
        self.loaded: list[LoadedGraph] = []
        self._generative = generative(model, options, self.loaded.append)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._generative is not None and self._generative.takes(args, kwargs):
            return self._generative.call(args, kwargs)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        key = (spec, self._model.training, *map(_describe, leaves))
        entry = self._entries.get(key)
        if entry is None or entry.stale():
            with self._lock:
                entry = self._entries.get(key)
                if entry is None or entry.stale():
                    entry = self._compile(key, args, kwargs)
        return entry(leaves, args, kwargs)

    @property
    def compiles(self) -> int:
        """How many input shapes were compiled so far."""
        steps = self._generative.runtime.compiles if self._generative is not None else 0
        return len(self._entries) + steps

    def _compile(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry:
        if self._model.training:
            warnings.warn(
                "the model is in training mode: dropout and batch norm act as in training, but a "
                "compiled model gives no gradients; call model.eval() for inference",
                stacklevel=3,
            )
        started = time.perf_counter()
        try:
            captured = capture(self._model, args, kwargs)
        except CompileError:
            if self._split is None:
                self._split = _Split(self._model, self.options, self.loaded)
            entry: Entry = self._split
        else:
            built = build(captured, self.options, cached=True)
            rest = time.perf_counter() - started - sum(built.stages.values())
            built.stages = {"capture": rest, **built.stages}
            graph = LoadedGraph(built, len(self.loaded))
            self.loaded.append(graph)
            entry = _Whole(graph, self._model)
        self._entries[key] = entry
        return entry

    def __getattr__(self, name: str) -> Any:
        language = self.__dict__.get("_generative")
        if name == "generate" and language is not None:
            return functools.partial(language.generate, self)
        return getattr(self.__dict__["_model"], name)

    def __repr__(self) -> str:
        return (
            f"CompiledModel({type(self._model).__name__}, chip={self.options['chip']}, "
            f"level={self.options['optimization_level']})"
        )


# Past eight shapes Dynamo would leave a model to eager torch.
_SHAPES = 4096


class _Split:
    """Several graphs: Dynamo runs the Python in between, and guards what that reads."""

    def __init__(self, model: torch.nn.Module, options: Options, loaded: list[LoadedGraph]) -> None:
        from temper.frontdoor.backend import make_backend

        self._model = model
        self._loaded: list[LoadedGraph] | None = loaded
        self._known = len(loaded)
        self._run = torch.compile(model, backend=make_backend(options, loaded), dynamic=False)

    def __call__(self, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with (
            torch.no_grad(),
            torch._dynamo.config.patch(recompile_limit=_SHAPES),
            own_errors(self._model, args, kwargs),
        ):
            made = self._run(*args, **kwargs)
        if self._loaded is not None and len(self._loaded) == self._known:
            warnings.warn(
                f"no part of {type(self._model).__name__} could be captured: it runs in eager "
                "torch on the host",
                stacklevel=3,
            )
        self._loaded = None
        return made

    def stale(self) -> bool:
        return False


class _Whole:
    """One graph for the whole model."""

    def __init__(self, graph: LoadedGraph, model: torch.nn.Module) -> None:
        self._graph = graph
        self._watch = ModuleWatch(model)
        captured = graph.built.captured
        self._positions = [a.position for a in captured.inputs if _is_tensor(graph, a.node)]
        self._unflatten = captured.unflatten
        self._owners = _owners(model, list(dict.fromkeys(graph.program.weights.values())))
        self._kinds = [_kind(seen) for _, _, _, seen in self._owners]

    def stale(self) -> bool:
        """Whether the model's Python, or a weight's shape or dtype, is another one now."""
        kinds = [_kind(held.get(name)) for _, held, name, _ in self._owners]
        return kinds != self._kinds or self._watch.changed()

    def __call__(self, leaves: list[Any], args: Any, kwargs: Any) -> Any:
        replaced = {
            path: held[name] for path, held, name, seen in self._owners if held[name] is not seen
        }
        if replaced:
            self._graph.replace_weights(replaced)
            self._owners = [(p, h, n, h[n]) for p, h, n, _ in self._owners]
        outputs = self._graph.run([leaves[p] for p in self._positions])
        return self._unflatten(self._graph.results(outputs, leaves))


def _is_tensor(graph: LoadedGraph, node: str) -> bool:
    return any(node == n for n in graph.program.inputs)


def _owners(
    model: torch.nn.Module, paths: list[str]
) -> list[tuple[str, dict[str, Any], str, torch.Tensor]]:
    """Where each weight hangs in the model, to notice another tensor in its place."""
    modules = dict(model.named_modules(remove_duplicate=False))
    found = []
    for path in paths:
        prefix, _, name = path.rpartition(".")
        module = modules.get(prefix)
        if module is None:
            continue
        for held in (module._parameters, module._buffers):
            if held.get(name) is not None:
                found.append((path, held, name, held[name]))
    return found


def _kind(weight: torch.Tensor | None) -> Any:
    return None if weight is None else (weight.shape, weight.dtype)


def _describe(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.shape, leaf.dtype, leaf.device.type
    try:
        hash(leaf)
    except TypeError:
        return repr(leaf)
    return type(leaf), leaf


def compile(
    model: torch.nn.Module, *, chip: str | None = None, level: int | None = None, **options: Any
) -> CompiledModel:
    """Compile a model for a chip: ``temper.compile(model, chip="n150", level=2, ...)``.

    Keyword arguments are compile options (``temper options`` lists them). The model is captured
    at its first call, for the shapes of that call.
    """
    if isinstance(model, CompiledModel):
        model = model._model
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"temper.compile takes a torch.nn.Module, not {type(model).__name__}")
    given = dict(options)
    if chip is not None:
        given["chip"] = chip
    if level is not None:
        given["optimization_level"] = level
    return CompiledModel(model, resolve(given))


def warmup(model: Any, *inputs: Any, iterations: int = 3, **kwargs: Any) -> Any:
    """Call the model a few times, so that compile, program cache and trace are behind you."""
    if iterations < 1:
        raise UsageError("warmup needs at least one iteration")
    output = None
    with torch.no_grad():
        for _ in range(iterations):
            output = model(*inputs, **kwargs)
    return output
