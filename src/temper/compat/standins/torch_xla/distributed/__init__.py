"""torch_xla.distributed: spawning on one chip."""

from __future__ import annotations

from temper.compat.missing import getattr_for

from . import xla_multiprocessing

__all__ = ["xla_multiprocessing"]
__getattr__ = getattr_for(__name__)
