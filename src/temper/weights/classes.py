"""A layer's class with some parameters read through the format op while a graph is captured."""

from __future__ import annotations

import copyreg
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from temper.errors import UsageError
from temper.weights.op import ensure_op_defined

# Attribute of an overridden layer: {parameter attribute: pattern that asked}.
_ORIGINS = "_weight_override_origins"

_classes: dict[tuple[type, tuple[tuple[str, str], ...]], type] = {}


@dataclass(frozen=True)
class FormatSetting:
    """The format of a weight, and who asked for it."""

    dtype: str
    origin: str


def overridden_formats(module: nn.Module) -> dict[str, FormatSetting]:
    """The overrides on one layer: {attribute: setting}."""
    formats: dict[str, str] = getattr(type(module), "_weight_formats", {})
    origins = module.__dict__.get(_ORIGINS, {})
    return {name: FormatSetting(dtype, origins.get(name, "")) for name, dtype in formats.items()}


def override(module: nn.Module, attribute: str, dtype: str, origin: str) -> None:
    """Let ``module.<attribute>`` carry ``dtype`` into captured graphs."""
    formats = {name: setting.dtype for name, setting in overridden_formats(module).items()}
    formats[attribute] = dtype
    _swap(module, _class_with(_base(module), tuple(sorted(formats.items()))))
    module.__dict__.setdefault(_ORIGINS, {})[attribute] = origin


def restore(module: nn.Module) -> None:
    """Give the layer its own class back."""
    if hasattr(type(module), "_weight_formats"):
        _swap(module, _base(module))
        module.__dict__.pop(_ORIGINS, None)


def _base(module: nn.Module) -> type:
    base: type = getattr(type(module), "_weight_base", type(module))
    return base


def _swap(module: nn.Module, made: type) -> None:
    try:
        module.__class__ = made
    except TypeError as error:
        raise UsageError(
            f"the weights of a {type(module).__name__} cannot be overridden: {error}"
        ) from None


def _class_with(base: type, formats: tuple[tuple[str, str], ...]) -> type:
    made = _classes.get((base, formats))
    if made is None:
        ensure_op_defined()
        body: dict[str, Any] = {
            # The layer keeps its name, in print-outs and for code that looks at it.
            "__module__": base.__module__,
            "__qualname__": base.__qualname__,
            "__doc__": base.__doc__,
            "__reduce_ex__": _reduce_ex,
            "_weight_base": base,
            "_weight_formats": dict(formats),
        }
        for name, dtype in formats:
            body[name] = _property(name, dtype)
        made = _classes.setdefault((base, formats), type(base.__name__, (base,), body))
    return made


def _property(name: str, dtype: str) -> property:
    def read(self: nn.Module) -> torch.Tensor | None:
        weight = self._parameters[name]
        # Outside of a capture the caller gets the parameter itself: its .grad, its identity, no
        # copy at every forward.
        if weight is not None and (torch.compiler.is_compiling() or get_proxy_mode() is not None):
            overridden: torch.Tensor = torch.ops.tt.weight_dtype_override(weight, dtype)
            return overridden
        return weight

    return property(read)


def _reduce_ex(self: nn.Module, protocol: int) -> Any:
    reduced = super(type(self), self).__reduce_ex__(max(protocol, 2))
    new_object = copyreg.__newobj__  # type: ignore[attr-defined]
    if isinstance(reduced, tuple) and reduced[0] is new_object:
        made: Any = type(self)
        formats = tuple(made._weight_formats.items())
        return (_rebuild, (made._weight_base, formats), *reduced[2:])
    return reduced


def _rebuild(base: type, formats: tuple[tuple[str, str], ...]) -> nn.Module:
    made: Any = _class_with(base, formats)
    built: nn.Module = made.__new__(made)
    return built
