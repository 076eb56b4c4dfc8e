"""forge.verify.value_checkers: how values are compared."""

from __future__ import annotations

from temper.compat.forge_model import AutomaticValueChecker
from temper.compat.missing import getattr_for

__all__ = ["AutomaticValueChecker"]
__getattr__ = getattr_for(__name__)
