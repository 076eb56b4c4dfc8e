"""tt_torch.tools.device_manager: there is one device, and nothing to acquire."""

from __future__ import annotations

from typing import Any

import torch

from temper.compat.missing import getattr_for
from temper.compat.torch_device import tt_device

__all__ = ["DeviceManager"]


class DeviceManager:
    """Hands out the virtual chip."""

    # What older tests look at once everything was released: nothing is ever held.
    _parent: None = None
    _devices: tuple[torch.device, ...] = ()

    @staticmethod
    def get_available_devices(**_: Any) -> list[torch.device]:
        return [tt_device(None)]

    @staticmethod
    def get_num_available_devices() -> int:
        return 1

    @classmethod
    def acquire_available_devices(cls, **_: Any) -> tuple[torch.device, list[torch.device]]:
        parent = cls.create_parent_mesh_device([1, 1])
        return parent, [parent]

    @staticmethod
    def create_parent_mesh_device(mesh_shape: Any, **_: Any) -> torch.device:
        return tt_device(None)

    @staticmethod
    def create_sub_mesh_device(parent_mesh: Any, mesh_offset: Any = None, **_: Any) -> torch.device:
        return tt_device(None)

    @staticmethod
    def release_parent_device(*_: Any, **__: Any) -> None:
        """Nothing is held."""

    @staticmethod
    def release_sub_mesh_device(*_: Any, **__: Any) -> None:
        """Nothing is held."""

    release_devices = release_parent_device


__getattr__ = getattr_for(__name__)
