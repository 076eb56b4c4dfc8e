"""forge.verify: a compiled model against the framework's."""

from __future__ import annotations

from temper.compat.missing import getattr_for

from . import config, value_checkers, verify

__all__ = ["config", "value_checkers", "verify"]
__getattr__ = getattr_for(__name__)
