"""torch_xla.experimental.plugins: scripts register tt-xla's plugin; the virtual chip needs none."""

from __future__ import annotations

from temper.compat.missing import getattr_for

__all__ = ["DevicePlugin", "default", "register_plugin", "use_dynamic_plugins"]


class DevicePlugin:
    """The base class that scripts derive theirs from; its library is never loaded."""

    def library_path(self) -> str:
        return ""

    def client_create_options(self) -> dict[str, str]:
        return {}


def register_plugin(name: str, device_plugin: DevicePlugin) -> None:
    """Accepted: the virtual chip is there already."""


def use_dynamic_plugins() -> None:
    """Accepted."""


def default() -> DevicePlugin:
    return DevicePlugin()


__getattr__ = getattr_for(__name__)
