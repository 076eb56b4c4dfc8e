"""torch_xla.runtime (usually ``xr``) for one chip and one process."""

from __future__ import annotations

import os

from temper import chips
from temper.compat.missing import getattr_for, note
from temper.errors import UsageError
from temper.options import resolve

__all__ = [
    "addressable_device_count", "addressable_runtime_device_count", "clear_cache",
    "clear_computation_cache", "device_type",
    "global_device_count", "global_ordinal", "global_runtime_device_attributes",
    "global_runtime_device_count", "initialize_cache", "is_spmd", "local_ordinal",
    "local_process_count", "process_count", "process_index", "set_device_type", "use_spmd",
    "world_size",
]  # fmt: skip

# ``torch_xla.runtime.runtime`` is this module once more; see temper.compat.forwards.
__path__: list[str] = []
_type = "TT"
_spmd: list[bool] = []


def set_device_type(pjrt_device: str) -> None:
    """Only "TT" is here."""
    if pjrt_device.upper() != "TT":
        raise UsageError(f"no device type {pjrt_device!r}", allowed=["TT"])


def device_type() -> str:
    return _type


def clear_computation_cache() -> None:
    """Compiled programs belong to their models here; nothing is kept beside them."""


def initialize_cache(path: str | os.PathLike[str], readonly: bool = False) -> None:
    """Compiled programs are kept by Temper's own cache; the folder is made as scripts expect."""
    if not readonly:
        os.makedirs(path, exist_ok=True)


def global_device_count() -> int:
    return 1


def global_runtime_device_count() -> int:
    return 1


def global_runtime_device_attributes() -> list[dict[str, object]]:
    """The chip's architecture and board."""
    chip = chips.get(resolve()["chip"])
    return [{"device_arch": chip.arch, "name": f"TT:0 {chip.name}", "coords": [0, 0, 0]}]


def addressable_runtime_device_count() -> int:
    return 1


def addressable_device_count() -> int:
    return 1


def world_size() -> int:
    return 1


def global_ordinal() -> int:
    return 0


def local_ordinal() -> int:
    return 0


def process_count() -> int:
    return 1


def local_process_count() -> int:
    return 1


def process_index(default: int | None = None) -> int:
    return 0


def is_spmd() -> bool:
    return bool(_spmd)


def use_spmd(auto: bool = False) -> None:
    """Meshes have one device here, so nothing is split."""
    _spmd[:] = [True]
    note("use_spmd", "SPMD over one chip: every tensor is whole on it")


def clear_cache() -> None:
    """Programs stay in Temper's own cache; TEMPER_CACHE=0 leaves it unused."""


__getattr__ = getattr_for(__name__)
