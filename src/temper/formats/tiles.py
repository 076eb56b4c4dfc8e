"""Tilize and untilize: row-major values to 32x32 tiles of four 16x16 faces, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from temper.errors import UsageError
from temper.formats.arrays import (
    Array,
    address,
    check_out,
    checked,
    empty_like,
    is_plain,
    is_tensor,
)
from temper.formats.sizes import matrix_shape, tile_count
from temper.kernels import tilize_ptr, untilize_ptr

TILE_VALUES = 1024


def tilize(array: Array, out: Array | None = None) -> Array:
    """Values in tile order, (tiles, 1024), of the array's type; the padding is zero.

    Faces stand in the order top left, top right, bottom left, bottom right, each row-major; tiles
    are row-major over the last two dimensions, outer dimensions outermost.
    """
    array = checked(array)
    dtype = dtype_name(array)
    shape = (tile_count(array.shape), TILE_VALUES)
    if out is not None:
        check_out(out, array, shape, dtype)
        require_plain(out, dtype)
    result = empty_like(array, shape, dtype) if out is None else out
    source = contiguous(array)
    tilize_ptr(address(source), address(result), *matrix_shape(array.shape), item_bytes(array))
    return result


def untilize(tiles: Array, shape: Sequence[int], out: Array | None = None) -> Array:
    """The inverse of :func:`tilize`: row-major values of ``shape``, without the padding."""
    tiles = checked(tiles)
    dtype, shape = dtype_name(tiles), checked_shape(shape)
    needed = (tile_count(shape), TILE_VALUES)
    if math.prod(tiles.shape) != math.prod(needed):
        raise UsageError(
            f"{tuple(tiles.shape)} values are not the tiles of shape {shape}",
            needs=f"{needed[0]} tiles x {TILE_VALUES}",
        )
    if out is not None:
        check_out(out, tiles, shape, dtype)
        require_plain(out, dtype)
    result = empty_like(tiles, shape, dtype) if out is None else out
    source = contiguous(tiles)
    untilize_ptr(address(source), address(result), *matrix_shape(shape), item_bytes(tiles))
    return result


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape of whole numbers, none negative."""
    try:
        result = tuple(int(size) for size in shape)
    except (TypeError, ValueError):
        raise UsageError(f"not a shape: {shape!r}") from None
    if any(size < 0 for size in result):
        raise UsageError(f"a shape has no negative sizes: {result}")
    return result


def require_plain(out: Array, dtype: str) -> None:
    """Refuse an output that is not contiguous and of this dtype."""
    if not is_plain(out, dtype):
        raise UsageError("out must be contiguous")


def dtype_name(array: Array) -> str:
    """The dtype's name, the same for numpy and torch."""
    return str(array.dtype).removeprefix("torch.")


def item_bytes(array: Array) -> int:
    """Bytes of one element."""
    return int(array.element_size() if is_tensor(array) else array.dtype.itemsize)


def contiguous(array: Array) -> Any:
    """The array itself where its values lie in a row, else a copy."""
    if is_tensor(array):
        return array.resolve_neg().contiguous()
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
