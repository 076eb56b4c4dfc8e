"""tt_torch.sharding: constraints on how outputs are split; over one chip they are whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temper.compat.missing import getattr_for

__all__ = ["sharding_constraint_hook", "sharding_constraint_tensor"]


def sharding_constraint_hook(module: Any, mesh: Any, partition_spec: Any) -> Callable[..., Any]:
    """A forward hook that leaves the output as it is."""
    return lambda module, args, output: output


def sharding_constraint_tensor(tensor: Any, mesh: Any, partition_spec: Any) -> Any:
    return tensor


__getattr__ = getattr_for(__name__)
