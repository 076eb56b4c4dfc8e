"""Pack arrays to the bytes of tiles as the chip stores them, and unpack them again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temper.errors import UsageError
from temper.formats.arrays import (
    Array,
    address,
    assign,
    check_out,
    checked,
    empty_like,
    is_plain,
    to_numpy,
    to_plain,
)
from temper.formats.names import BLOCK_FORMATS, INTEGER_FORMATS, canonical_format
from temper.formats.quantization import quantize, to_integer
from temper.formats.sizes import TILE, TILE_BYTES, element_bits, matrix_shape, tile_count
from temper.formats.tiles import checked_shape, require_plain
from temper.kernels import FORMAT_CODES, pack_ptr, tilize_ptr, unpack_ptr, untilize_ptr

# An input that must first be cast or made contiguous is packed in pieces of at most this many
# values, so that the copies stay at 64 MiB.
_PIECE = 1 << 24


def pack(array: Array, fmt: object, layout: str = "tile", out: Array | None = None) -> Array:
    """The bytes of ``array`` in device memory: uint8, (tiles, tile bytes).

    The last two dimensions are filled up with zeros to whole tiles; ranks 0 and 1 count as one
    row. ``layout="row_major"`` gives (rows, row bytes) and is not possible for block formats.
    """
    name = canonical_format(fmt)
    array = checked(array)
    check_layout(name, layout)
    shape = tuple(array.shape)
    size = packed_shape(shape, name, layout)
    if out is not None:
        check_out(out, array, size, "uint8")
        require_plain(out, "uint8")
    result = empty_like(array, size, "uint8") if out is None else out
    if layout == "row_major":
        _pack_rows(array, name, result)
        return result
    target = address(result)
    for piece, (batch, rows, columns), first_tile in _pieces(array):
        to = target + first_tile * TILE_BYTES[name]
        if name in INTEGER_FORMATS:
            source = to_integer(piece, name)
            tilize_ptr(address(source), to, batch, rows, columns, element_bits(name) // 8)
        else:
            source = to_plain(piece, "float32")
            pack_ptr(address(source), to, batch, rows, columns, FORMAT_CODES[name])
    return result


def unpack(
    packed: Array,
    fmt: object,
    shape: Sequence[int],
    layout: str = "tile",
    out: Array | None = None,
) -> Array:
    """The values in packed bytes: float32, or the integer type of an integer format.

    ``packed`` is what :func:`pack` returned, in any shape, or a bytes-like object. ``out``
    receives the result.
    """
    name, shape = canonical_format(fmt), checked_shape(shape)
    check_layout(name, layout)
    packed = _packed_bytes(packed)
    needed = math.prod(packed_shape(shape, name, layout))
    if math.prod(packed.shape) != needed:
        raise UsageError(
            f"{math.prod(packed.shape)} B are not an array of shape {shape} in {name}",
            needs=f"{needed} B" + _tile_arithmetic(shape, name, layout),
        )
    dtype = name if name in INTEGER_FORMATS else "float32"
    if out is not None:
        check_out(out, packed, shape, dtype)
        require_plain(out, dtype)
    result = empty_like(packed, shape, dtype) if out is None else out
    batch, rows, columns = matrix_shape(shape)
    if layout == "row_major":
        _unpack_rows(packed, name, result)
    elif name in INTEGER_FORMATS:
        size = element_bits(name) // 8
        untilize_ptr(address(packed), address(result), batch, rows, columns, size)
    else:
        unpack_ptr(address(packed), address(result), batch, rows, columns, FORMAT_CODES[name])
    return result


def packed_shape(shape: Sequence[int], fmt: object, layout: str = "tile") -> tuple[int, int]:
    """(tiles, tile bytes), or (rows, row bytes) in row-major layout."""
    name = canonical_format(fmt)
    check_layout(name, layout)
    if layout == "tile":
        return tile_count(shape), TILE_BYTES[name]
    batch, rows, columns = matrix_shape(shape)
    return batch * rows, columns * element_bits(name) // 8


def check_layout(fmt: str, layout: str) -> None:
    """Refuse a layout that a format does not have."""
    if layout not in ("tile", "row_major"):
        raise UsageError(f"unknown layout {layout!r}", allowed="tile row_major")
    if layout == "row_major" and fmt in BLOCK_FORMATS:
        raise UsageError(
            f"{fmt} cannot be row-major",
            needs="a shared exponent for 16 values of a tile row exists only in tiles",
            try_=["layout='tile'", "bfloat16"],
        )


def _pieces(array: Array) -> Iterator[tuple[Array, tuple[int, int, int], int]]:
    """Parts of the array that fall into whole tiles, their matrix shape and first tile."""
    shape = tuple(array.shape)
    batch, rows, columns = matrix_shape(shape)
    count = batch * rows * columns
    if count == 0:
        return
    if is_plain(array, "float32") or count <= _PIECE or len(shape) < 2:
        yield array, (batch, rows, columns), 0
        return
    height = max(TILE, _PIECE // columns // TILE * TILE)
    tile_columns, first_tile = -(-columns // TILE), 0
    for index in itertools.product(*(range(size) for size in shape[:-2])):
        for row in range(0, rows, height):
            piece = array[index][row : row + height]
            tall = int(piece.shape[0])
            yield piece, (1, tall, columns), first_tile
            first_tile += -(-tall // TILE) * tile_columns


def _packed_bytes(packed: Array) -> Array:
    if isinstance(packed, (bytes, bytearray, memoryview)):
        return np.frombuffer(packed, np.uint8)
    packed = checked(packed)
    if str(packed.dtype).removeprefix("torch.") != "uint8":
        raise UsageError(f"packed bytes are uint8, not {packed.dtype}")
    return to_plain(packed, "uint8")


def _pack_rows(array: Array, name: str, result: Array) -> None:
    words = _row_words(result, name)
    if name == "bfloat16":
        source = to_numpy(quantize(array, name))
        words[...] = (source.view(np.uint32) >> np.uint32(16)).reshape(words.shape)
    elif name == "float32":
        assign(words.reshape(tuple(array.shape)), to_numpy(array))
    else:
        words[...] = to_numpy(to_integer(array, name)).reshape(words.shape)


def _unpack_rows(packed: Array, name: str, result: Array) -> None:
    words = _row_words(packed, name)
    target = to_numpy(result)
    if name == "bfloat16":
        words = (words.astype(np.uint32) << np.uint32(16)).view(np.float32)
    target[...] = words.reshape(target.shape)


def _row_words(packed: Array, name: str) -> NDArray[Any]:
    """Row-major bytes as words of the format's size."""
    kind = {"float32": "float32", "bfloat16": "uint16"}.get(name, name)
    return to_numpy(packed).reshape(-1).view(kind)


def _tile_arithmetic(shape: tuple[int, ...], name: str, layout: str) -> str:
    if layout != "tile":
        return ""
    return f" = {tile_count(shape)} tiles x {TILE_BYTES[name]} B"
