"""tt_torch.backend: tt-xla's backend for torch.compile."""

from __future__ import annotations

from temper.compat.missing import getattr_for

from . import backend

__all__ = ["backend"]
__getattr__ = getattr_for(__name__)
