"""torch_plugin_tt: tt-xla's plugin for torch_xla; the virtual chip needs none."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.standins.torch_xla.experimental.plugins import DevicePlugin

__all__ = ["TTPlugin"]


class TTPlugin(DevicePlugin):
    """Accepted wherever a plugin is registered."""


__getattr__ = getattr_for(__name__)
