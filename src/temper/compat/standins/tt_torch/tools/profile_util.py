"""tt_torch.tools.profile_util: the profiler as a class."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.tt_torch_profile import Profiler

__all__ = ["Profiler"]
__getattr__ = getattr_for(__name__)
