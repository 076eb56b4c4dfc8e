"""A model captured once for each type and batch, and compiled from there for any setting."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from temper.capture.capture import capture
from temper.compiler.pipeline import CompiledPrograms, build, compile_model
from temper.errors import CompileError
from temper.frontdoor.loader import Loaded
from temper.graph.captured import Captured
from temper.options import resolve
from temper.tuning.prepared import Source, prepared


@dataclass
class Captures:
    """Capture takes far longer than the stages after it, and does not depend on the board."""

    source: Source
    _known: dict[tuple[str, int | None], tuple[Loaded, Captured | None]] = field(
        default_factory=dict
    )
    _weights: dict[tuple[str, str], torch.Tensor] = field(default_factory=dict)

    def compile(
        self, dtype: str, batch: int | None, options: Mapping[str, Any]
    ) -> tuple[Loaded, CompiledPrograms]:
        """The model as loaded, and its programs under these options."""
        loaded, captured = self._captured(dtype, batch)
        if captured is None:  # several graphs, which Dynamo cuts
            return loaded, compile_model(loaded.model, loaded.inputs, loaded.kwargs, options)
        return loaded, CompiledPrograms([build(_fresh(captured), resolve(options), cached=True)])

    def _captured(self, dtype: str, batch: int | None) -> tuple[Loaded, Captured | None]:
        key = dtype, batch
        if key not in self._known:
            loaded = prepared(self.source, batch, dtype)
            try:
                captured = capture(loaded.model, loaded.inputs, loaded.kwargs)
            except CompileError:
                self._known[key] = loaded, None
            else:
                self._share(dtype, captured)
                # The weights are in the capture; the module would hold them once more.
                bare = replace(loaded, model=torch.nn.Module())
                self._known[key] = bare, captured
        return self._known[key]

    def _share(self, dtype: str, captured: Captured) -> None:
        """One copy of the weights for all batches."""
        for path, value in captured.weights.items():
            held = self._weights.setdefault((dtype, path), value)
            if held is not value and held.shape == value.shape and torch.equal(held, value):
                captured.weights[path] = held


def _fresh(captured: Captured) -> Captured:
    """A capture that passes may change, over the same weights."""
    graph = copy.deepcopy(captured.graph)
    # A copy may give nodes other names, those of Python's own functions first.
    names = {old.name: new.name for old, new in zip(captured.graph.nodes, graph.nodes, strict=True)}
    return replace(
        captured,
        module=fx.GraphModule(captured.module, graph),
        arguments=[replace(a, node=names[a.node]) for a in captured.arguments],
        weights=dict(captured.weights),
        outputs=list(captured.outputs),
        mutations=list(captured.mutations),
        weight_report=[],
    )
