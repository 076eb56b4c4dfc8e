"""torch_xla.experimental: device plugins and the eager mode switch."""

from __future__ import annotations

from temper.compat.missing import getattr_for

from . import eager, plugins
from .eager import compile, eager_mode

__all__ = ["compile", "eager", "eager_mode", "plugins"]
__getattr__ = getattr_for(__name__)
