"""The table of reference functions by op kind, and the rules that they are asked to follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from temper.program import Op, TensorSpec


@dataclass(frozen=True, slots=True)
class Rules:
    """Whether a bfloat16 Dest is rounded step by step, and the formats of the op's operands."""

    exact_accumulation: bool
    formats: tuple[str, ...]


Reference = Callable[[Op, list[NDArray[Any]], list[TensorSpec], Rules], Sequence[NDArray[Any]]]
REFERENCE: dict[str, Reference] = {}


def reference(*kinds: str) -> Callable[[Reference], Reference]:
    """Register a function as the reference of these op kinds."""

    def register(function: Reference) -> Reference:
        REFERENCE.update(dict.fromkeys(kinds, function))
        return function

    return register
