"""torch_xla.experimental: device plugins and the eager mode switch."""

from __future__ import annotations

from temper.compat.missing import getattr_for

from . import plugins

__all__ = ["eager_mode", "plugins"]


def eager_mode(enable: bool) -> None:
    """Eager calls always run at once here."""


__getattr__ = getattr_for(__name__)
