"""tt_torch.tools: profiling, verification, configuration."""

from __future__ import annotations

from typing import Any

from temper.compat.missing import getattr_for

from . import device_manager

__all__ = ["device_manager", "mark_module_user_inputs"]


def mark_module_user_inputs(module: Any) -> None:
    """Temper tells inputs from weights by itself."""


__getattr__ = getattr_for(__name__)
