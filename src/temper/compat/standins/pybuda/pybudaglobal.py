"""pybuda.pybudaglobal: the tile and the reset."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.pybuda_device import Device
from temper.compat.pybuda_run import reset as pybuda_reset

__all__ = ["TILE_DIM", "align_up_tile", "get_devices", "pybuda_reset"]

TILE_DIM = 32


def align_up_tile(size: int) -> int:
    """The next multiple of a tile's edge."""
    return -(-size // TILE_DIM) * TILE_DIM


def get_devices() -> list[Device]:
    return list(Device.all)


__getattr__ = getattr_for(__name__)
