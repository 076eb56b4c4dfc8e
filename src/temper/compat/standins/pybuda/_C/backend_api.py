"""pybuda._C.backend_api: back ends and architectures."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.pybuda_formats import BackendDevice, BackendType, DeviceMode

__all__ = ["BackendDevice", "BackendType", "DeviceMode"]
__getattr__ = getattr_for(__name__)
