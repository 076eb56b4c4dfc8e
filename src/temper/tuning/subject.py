"""What is measured: a model argument, a module or any callable, made ready to be called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from temper.cost import ProgramCost
from temper.errors import UsageError
from temper.frontdoor.compiled import CompiledModel
from temper.frontdoor.compiled import compile as compile_
from temper.frontdoor.loader import load

# Settings that belong to the input, not to the compiler.
_NOT_OPTIONS = frozenset({"batch"})


@dataclass
class Subject:
    """One thing to time, under one setting."""

    name: str
    call: Callable[..., Any]
    inputs: tuple[Any, ...]
    kwargs: dict[str, Any]
    batch: int
    settings: dict[str, Any] = field(default_factory=dict)
    plain: Callable[..., Any] | None = None  # the same in eager torch, for the lint

    @property
    def compiled(self) -> CompiledModel | None:
        return self.call if isinstance(self.call, CompiledModel) else None

    @property
    def chip(self) -> str:
        return str(self.compiled.options["chip"]) if self.compiled else ""

    def run(self) -> Any:
        return self.call(*self.inputs, **self.kwargs)

    def run_counted(self) -> tuple[Any, list[ProgramCost]]:
        """One call, and the modelled costs of the graphs in it, as often as it called each.

        Empty for what we did not compile.
        """
        graphs = self.compiled.loaded if self.compiled else []
        before = [graph.stats.calls for graph in graphs]
        made = self.run()
        counts = [graph.stats.calls - b for graph, b in zip(graphs, before, strict=True)]
        return made, [g.cost() for g, n in zip(graphs, counts, strict=True) for _ in range(n)]


def subject(
    model: Any,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    batch: int | None = None,
    name: str | None = None,
) -> Subject:
    """A subject from ``file.py:callable``, a torch module, a compiled model or a callable."""
    settings = dict(options or {})
    if "batch" in settings:
        batch = _batch(settings["batch"])
    chosen = {k: v for k, v in settings.items() if k not in _NOT_OPTIONS}
    if isinstance(model, str):
        loaded = load(model, batch)
        model, inputs, kwargs = loaded.model, loaded.inputs, loaded.kwargs
        name = name or type(model).__name__
    if inputs is None:
        inputs = ()
    elif isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    elif isinstance(inputs, Mapping):
        inputs, kwargs = (), {**inputs, **(kwargs or {})}
    given = tuple(inputs), dict(kwargs or {})
    size = batch or batch_of(given)
    label = str(name or getattr(model, "__name__", type(model).__name__))
    if isinstance(model, CompiledModel):
        if chosen:
            raise UsageError("the model is compiled already: its options cannot be changed")
        return Subject(label, model, *given, size, settings, model._model)
    if isinstance(model, torch.nn.Module) and not hasattr(model, "_orig_mod"):
        model.eval()
        compiled = compile_(model, **chosen)
        # What a settings file or the environment says counts as said here.
        kept = {
            **compiled.options.changed(),
            **{k: settings[k] for k in _NOT_OPTIONS & settings.keys()},
        }
        return Subject(label, compiled, *given, size, kept, model)
    if not callable(model):
        raise UsageError(f"temper.bench takes a model or a callable, not {type(model).__name__}")
    if chosen:
        raise UsageError("compile options need a torch.nn.Module, not a callable")
    return Subject(label, model, *given, size, settings, model)


def batch_of(given: Any) -> int:
    """The first dimension of the first tensor; 1 when there is none."""
    for leaf in pytree.tree_leaves(given):
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 1:
            return int(leaf.shape[0])
    return 1


def size_bytes(value: Any) -> int:
    """Bytes of every tensor in a nest of inputs or outputs."""
    leaves = pytree.tree_leaves(value)
    return sum(t.nelement() * t.element_size() for t in leaves if isinstance(t, torch.Tensor))


def _batch(value: Any) -> int:
    try:
        batch = int(value)
    except (TypeError, ValueError):
        batch = 0
    if batch < 1:
        raise UsageError(f"{value!r} is no batch", needs="a whole number of at least 1")
    return batch
