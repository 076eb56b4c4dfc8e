"""forge.verify.verify: run both and compare."""

from __future__ import annotations

from temper.compat.forge_model import verify
from temper.compat.missing import getattr_for

__all__ = ["verify"]
__getattr__ = getattr_for(__name__)
