"""forge._C.runtime.experimental: the program cache, which is always on here."""

from __future__ import annotations

from typing import Any

from temper.compat.missing import getattr_for

__all__ = ["DeviceSettings", "configure_devices"]


class DeviceSettings:
    """``enable_program_cache`` and the like."""

    enable_program_cache = True


def configure_devices(device_settings: Any = None, **_: Any) -> None:
    """Accepted: there is one virtual chip, and it caches programs."""


__getattr__ = getattr_for(__name__)
