"""Which ATen op is lowered by which function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from temper.graph.kept import KEPT_OPS

if TYPE_CHECKING:
    from temper.lowering.builder import Builder, Value

Lowering = Callable[["Builder", Any], "Value | tuple[Value, ...] | None"]
LOWERINGS: dict[Any, Lowering] = {}

F = TypeVar("F", bound=Callable[..., Any])


def lowers(*targets: Any) -> Callable[[F], F]:
    """Register a function as the lowering of these targets; None from it means: fall back."""

    def register(function: F) -> F:
        for target in targets:
            LOWERINGS[target] = function
            KEPT_OPS.add(target)
        return function

    return register
