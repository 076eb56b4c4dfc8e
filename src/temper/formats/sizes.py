"""Sizes of tiles in bytes and of arrays in tiles. No numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from temper.errors import UsageError
from temper.formats.names import BLOCK_FORMATS, canonical_format

TILE = 32
FACE = 16
# Consecutive values of a row that share one exponent in a block format.
GROUP = 16

_ELEMENT_BITS = {
    "float32": 32,
    "uint32": 32,
    "int32": 32,
    "bfloat16": 16,
    "uint16": 16,
    "uint8": 8,
    "bfloat8_b": 8,
    "bfloat4_b": 4,
    "bfloat2_b": 2,
}
# Tile shapes of the hardware besides 32x32; Grayskull has only that one.
TILE_SHAPES = ((32, 32), (16, 32), (32, 16), (16, 16), (8, 32), (4, 32), (2, 32), (1, 32))


def tile_bytes(fmt: object, tile: tuple[int, int] = (TILE, TILE)) -> int:
    """Bytes of one tile: values, and for block formats one exponent a group.

    The exponents come first and are filled up to a multiple of 16 bytes.
    """
    name = canonical_format(fmt)
    if tuple(tile) not in TILE_SHAPES:
        allowed = [f"{height}x{width}" for height, width in TILE_SHAPES]
        raise UsageError(f"no tile has the shape {tile}", allowed=" ".join(allowed))
    values = tile[0] * tile[1]
    size = values * _ELEMENT_BITS[name] // 8
    if name in BLOCK_FORMATS:
        size += -(-(values // GROUP) // 16) * 16
    return size


TILE_BYTES = {name: tile_bytes(name) for name in _ELEMENT_BITS}


def element_bits(fmt: object) -> int:
    """Bits of one value without its share of the exponent."""
    return _ELEMENT_BITS[canonical_format(fmt)]


def matrix_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """(batch, rows, columns) of an array; ranks 0 and 1 are one row."""
    if len(shape) == 0:
        return 1, 1, 1
    if len(shape) == 1:
        return 1, 1, shape[0]
    return math.prod(shape[:-2]), shape[-2], shape[-1]


def padded_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape with its last two dimensions filled up to whole tiles."""
    full = (1,) * (2 - len(shape)) + tuple(shape)
    return (*full[:-2], -(-full[-2] // TILE) * TILE, -(-full[-1] // TILE) * TILE)


def tile_count(shape: Sequence[int]) -> int:
    """Tiles that hold an array of this shape."""
    return math.prod(padded_shape(shape)) // (TILE * TILE)
