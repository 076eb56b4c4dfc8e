"""ttxla_tools.logging: a logger of the standard library."""

from __future__ import annotations

import logging as _logging

from temper.compat.missing import getattr_for

__all__ = ["logger"]
logger = _logging.getLogger("ttxla_tools")
__getattr__ = getattr_for(__name__)
