"""torch_xla.runtime (usually ``xr``) for one chip and one process."""

from __future__ import annotations

import os

from temper.compat.missing import getattr_for
from temper.errors import UsageError

__all__ = [
    "addressable_device_count", "device_type", "global_device_count", "global_ordinal",
    "global_runtime_device_count", "initialize_cache", "is_spmd", "local_ordinal",
    "local_process_count", "process_count", "process_index", "set_device_type", "use_spmd",
    "world_size",
]  # fmt: skip

_type = "TT"


def set_device_type(pjrt_device: str) -> None:
    """Only "TT" is here."""
    if pjrt_device.upper() != "TT":
        raise UsageError(f"no device type {pjrt_device!r}", allowed=["TT"])


def device_type() -> str:
    return _type


def initialize_cache(path: str | os.PathLike[str], readonly: bool = False) -> None:
    """Compiled programs are kept by Temper's own cache; the folder is made as scripts expect."""
    if not readonly:
        os.makedirs(path, exist_ok=True)


def global_device_count() -> int:
    return 1


def global_runtime_device_count() -> int:
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
    return False


def use_spmd(auto: bool = False) -> None:
    raise UsageError("SPMD shards over several chips; Temper models a single chip")


__getattr__ = getattr_for(__name__)
