"""Weights that layers share stay shared when a model moves to the device "tt" or back.

``nn.Module.to`` keeps a Parameter's identity between torch's built-in devices. Towards an added
device it makes a new Parameter for every layer, so that tied weights would part.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch import nn

_local = threading.local()


def keep_ties() -> None:
    """Wrap ``nn.Module._apply``, through which every conversion of a model goes."""
    convert: Callable[..., Any] = nn.Module._apply

    def _apply(self: nn.Module, fn: Callable[..., Any], recurse: bool = True) -> Any:
        if getattr(_local, "inside", False):
            return convert(self, fn, recurse)
        ties = _ties(self)
        _local.inside = True
        try:
            return convert(self, fn, recurse)
        finally:
            _local.inside = False
            for (module, name), *others in ties:
                for other, other_name in others:
                    other._parameters[other_name] = module._parameters[name]

    nn.Module._apply = _apply  # type: ignore[method-assign]


def _ties(model: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    """The parameters that several layers hold, each with its holders."""
    holders: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                holders.setdefault(id(parameter), []).append((module, name))
    return [held for held in holders.values() if len(held) > 1]
