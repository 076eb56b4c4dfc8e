"""torch_xla.debug: metrics and the profiler's marks."""

from __future__ import annotations

from temper.compat.missing import getattr_for

from . import metrics, profiler

__all__ = ["metrics", "profiler"]
__getattr__ = getattr_for(__name__)
