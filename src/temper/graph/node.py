"""The type of FX nodes in signatures."""

from __future__ import annotations

from typing import Any, TypeAlias

from torch import fx

# A torch.fx.Node. Its arguments are a union of twenty types, which says nothing to a checker;
# what they really are is known from the op's schema.
Node: TypeAlias = Any


def is_node(value: Any) -> bool:
    """Whether a value is a node and not a number, a list or None."""
    return isinstance(value, fx.Node)
