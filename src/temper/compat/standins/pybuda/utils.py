"""pybuda.utils: rounding up to tiles."""

from __future__ import annotations

from temper.compat.missing import getattr_for

from .pybudaglobal import align_up_tile

__all__ = ["align_up", "align_up_tile"]


def align_up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


__getattr__ = getattr_for(__name__)
