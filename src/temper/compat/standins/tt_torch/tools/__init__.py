"""tt_torch.tools: profiling, verification, configuration."""

from __future__ import annotations

from temper.compat.missing import getattr_for

from . import device_manager, profile_util, tt_profile, utils, verify

__all__ = ["device_manager", "profile_util", "tt_profile", "utils", "verify"]
__getattr__ = getattr_for(__name__)
