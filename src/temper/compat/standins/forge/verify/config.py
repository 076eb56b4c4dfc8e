"""forge.verify.config: what to compare."""

from __future__ import annotations

from temper.compat.forge_model import VerifyConfig
from temper.compat.missing import getattr_for

__all__ = ["VerifyConfig"]
__getattr__ = getattr_for(__name__)
