"""forge._C.runtime: settings of devices."""

from __future__ import annotations

from temper.compat.missing import getattr_for

from . import experimental

__all__ = ["experimental"]
__getattr__ = getattr_for(__name__)
