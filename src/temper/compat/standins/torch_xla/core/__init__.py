"""torch_xla.core: the module xla_model."""

from __future__ import annotations

from temper.compat.missing import getattr_for

from . import xla_model

__all__ = ["xla_model"]
__getattr__ = getattr_for(__name__)
