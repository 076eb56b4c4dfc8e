"""One loaded step of a model, and whether the model has become another one since."""

from __future__ import annotations

from typing import Any

import torch

from temper.frontdoor.loaded import LoadedGraph


class StepEntry:
    """Runs a step; other tensors in the place of weights are taken over at the next call."""

    def __init__(self, graph: LoadedGraph, model: torch.nn.Module) -> None:
        self.graph = graph
        self._model = model
        paths = dict.fromkeys(graph.program.weights.values())
        self._owners = _owners(model, list(paths))
        self._kinds = [_kind(seen) for _, _, _, seen in self._owners]
        self._python = _python(model)

    def stale(self) -> bool:
        """Whether the config, the mode, or a weight's shape or dtype is another one now."""
        kinds = [_kind(held.get(name)) for _, held, name, _ in self._owners]
        return kinds != self._kinds or _python(self._model) != self._python

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        replaced = {
            path: held[name] for path, held, name, seen in self._owners if held[name] is not seen
        }
        if replaced:
            self.graph.replace_weights(replaced)
            self._owners = [(p, h, n, h[n]) for p, h, n, _ in self._owners]
        return self.graph.run(inputs)[0]


def _python(model: torch.nn.Module) -> tuple[bool, dict[str, Any]]:
    """What the model's Python reads beside its weights, as far as it is known to change."""
    return model.training, dict(vars(model.config)) if hasattr(model, "config") else {}


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
