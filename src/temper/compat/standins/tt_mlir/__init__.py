"""tt_mlir: what tt-torch's scripts ask of its runtime by hand, for one virtual chip."""

from __future__ import annotations

from typing import Any

import torch

from temper.compat.missing import getattr_for
from temper.compat.torch_device import tt_device
from temper.compat.tt_torch_parts import malloc_trim

__all__ = [
    "close_mesh_device", "create_sub_mesh_device", "enable_persistent_kernel_cache",
    "get_arch", "get_num_available_devices", "is_runtime_debug_enabled", "malloc_trim",
    "open_mesh_device",
    "release_sub_mesh_device", "to_host",
]  # fmt: skip


def enable_persistent_kernel_cache() -> None:
    """Compiled programs are always kept on disk; TEMPER_CACHE=0 leaves the cache unused."""


def get_num_available_devices() -> int:
    return 1


def get_arch() -> str:
    from temper import chips
    from temper.options import resolve

    return chips.get(resolve()["chip"]).arch


def is_runtime_debug_enabled() -> bool:
    return False


def open_mesh_device(*_: Any, **__: Any) -> torch.device:
    return tt_device(None)


def create_sub_mesh_device(*_: Any, **__: Any) -> torch.device:
    return tt_device(None)


def close_mesh_device(device: Any) -> None:
    """Nothing is held."""


def release_sub_mesh_device(device: Any) -> None:
    """Nothing is held."""


def to_host(tensor: Any) -> Any:
    """Outputs of compiled models are torch tensors already."""
    return tensor.cpu() if isinstance(tensor, torch.Tensor) else tensor


__getattr__ = getattr_for(__name__)
