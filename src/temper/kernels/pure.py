"""The kernels in numpy, for machines without a compiler: same functions, same bits, less speed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Magnitude bits of a code, by the format codes of temper.kernels.
_BLOCK_BITS = {2: 7, 3: 3, 4: 1}
_TILE_BYTES = {0: 4096, 1: 2048, 2: 1088, 3: 576, 4: 320}
# Values worked on at once, so that the temporaries stay small whatever the array's size.
_CHUNK = 1 << 16

Array = NDArray[Any]


def round_bf16_ptr(data: int, count: int) -> None:
    """Round float32 values to bfloat16, in place."""
    round_bf16_to_ptr(data, data, count)


def round_bf16_to_ptr(src: int, dst: int, count: int) -> None:
    """Round float32 values to bfloat16 into another array."""
    quantize_to_ptr(src, dst, 1, count, 1)


def quantize_ptr(data: int, rows: int, columns: int, format_code: int) -> None:
    """Round a matrix to a format, in place."""
    quantize_to_ptr(data, data, rows, columns, format_code)


def quantize_to_ptr(src: int, dst: int, rows: int, columns: int, format_code: int) -> None:
    """Float32 values that the format can hold; groups of 16 start anew in each row."""
    if format_code in _BLOCK_BITS:
        bits = _BLOCK_BITS[format_code]
        from_ = _words(src, rows * columns).reshape(rows, columns)
        to = _words(dst, rows * columns).reshape(rows, columns)
        width = min(max(columns, 1), _CHUNK)
        height = max(1, _CHUNK // max(width, 16))  # short rows are filled up to a group
        for row in range(0, rows, height):
            for column in range(0, columns, width):
                part = (slice(row, row + height), slice(column, column + width))
                groups = _to_groups(from_[part])
                sizes, shared = _magnitudes(groups, bits)
                values = _values(groups >> np.uint32(31), sizes, shared, bits)
                to[part] = values.reshape(len(values), -1)[:, : to[part].shape[1]]
        return
    functions: dict[int, Callable[[Array], Array]] = {
        0: np.positive,
        1: _round_bf16,
        5: _truncate_tf32,
    }
    if format_code not in functions:
        raise ValueError("unknown format code")
    for piece, out in _pieces(src, dst, rows * columns):
        out[:] = functions[format_code](piece)


def mask_bits_ptr(src: int, dst: int, count: int, mask: int) -> None:
    """Keep the mantissa bits that a fidelity reads."""
    for from_, to in _pieces(src, dst, count):
        np.bitwise_and(from_, np.uint32(mask), out=to)


def add_round_bf16_ptr(sum_: int, part: int, count: int) -> None:
    """sum = bfloat16(sum + part), the accumulator of a 16-bit Dest register."""
    with np.errstate(all="ignore"):
        for total, more in _pieces(sum_, part, count):
            total[:] = _round_bf16((total.view(np.float32) + more.view(np.float32)).view(np.uint32))


def pack_ptr(src: int, dst: int, batch: int, rows: int, columns: int, format_code: int) -> None:
    """Row-major float32 to tile bytes."""
    size = _TILE_BYTES[format_code]
    for run in _runs(batch, rows, columns):
        band = _words(src + 4 * run.first_row * columns, run.height * columns)
        faces = _to_faces(band.reshape(run.height, columns)[:, run.columns])
        if format_code == 0:
            out = faces
        elif format_code == 1:
            out = (_round_bf16(faces) >> np.uint32(16)).astype(np.uint16)
        else:
            out = _encode(faces, _BLOCK_BITS[format_code])
        _bytes(dst + run.first_tile * size, out.nbytes)[:] = out.reshape(-1).view(np.uint8)


def unpack_ptr(src: int, dst: int, batch: int, rows: int, columns: int, format_code: int) -> None:
    """Tile bytes to row-major float32."""
    size = _TILE_BYTES[format_code]
    for run in _runs(batch, rows, columns):
        packed = _bytes(src + run.first_tile * size, run.tiles * size).reshape(run.tiles, size)
        if format_code == 0:
            faces = packed.view(np.uint32)
        elif format_code == 1:
            faces = packed.view(np.uint16).astype(np.uint32) << np.uint32(16)
        else:
            faces = _decode(packed, _BLOCK_BITS[format_code])
        band = _words(dst + 4 * run.first_row * columns, run.height * columns)
        part = band.reshape(run.height, columns)[:, run.columns]
        part[:] = _from_faces(faces)[: run.height, : part.shape[1]]


def tilize_ptr(src: int, dst: int, batch: int, rows: int, columns: int, size: int) -> None:
    """Elements of ``size`` bytes from row-major to tile order; the padding is zero."""
    kind = np.dtype((np.void, size))
    for run in _runs(batch, rows, columns):
        band = _bytes(src + size * run.first_row * columns, size * run.height * columns).view(kind)
        faces = _to_faces(band.reshape(run.height, columns)[:, run.columns])
        out = _bytes(dst + run.first_tile * 1024 * size, faces.nbytes)
        out[:] = faces.reshape(-1).view(np.uint8)


def untilize_ptr(src: int, dst: int, batch: int, rows: int, columns: int, size: int) -> None:
    """Elements of ``size`` bytes from tile order to row-major, without the padding."""
    kind = np.dtype((np.void, size))
    for run in _runs(batch, rows, columns):
        packed = _bytes(src + run.first_tile * 1024 * size, run.tiles * 1024 * size)
        faces = packed.view(kind).reshape(run.tiles, 1024)
        band = _bytes(dst + size * run.first_row * columns, size * run.height * columns).view(kind)
        part = band.reshape(run.height, columns)[:, run.columns]
        part[:] = _from_faces(faces)[: run.height, : part.shape[1]]


def _round_bf16(x: Array) -> Array:
    nan = (x & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    rounded = x + np.uint32(0x7FFF) + ((x >> np.uint32(16)) & np.uint32(1))
    result: Array = np.where(nan, np.uint32(0x7FC00000), rounded & np.uint32(0xFFFF0000))
    return result


def _truncate_tf32(x: Array) -> Array:
    normal = (x & np.uint32(0x7F800000)) != 0
    result: Array = np.where(normal, x & np.uint32(0xFFFFE000), x & np.uint32(0x80000000))
    return result


def _magnitudes(groups: Array, bits: int) -> tuple[Array, Array]:
    """Code magnitudes (..., 16) and the shared exponent of each group (..., 1)."""
    exponents = (groups >> np.uint32(23)) & np.uint32(0xFF)
    shared = exponents.max(axis=-1, keepdims=True)
    # Bits shifted out here are lost: they break no tie.
    down = np.minimum(shared - exponents, np.uint32(31))
    mantissas = ((groups & np.uint32(0x7FFFFF)) | np.uint32(0x800000)) >> down
    mantissas[exponents == 0] = 0
    shift = np.uint32(24 - bits)
    odd = (mantissas >> shift) & np.uint32(1)
    rounded = (mantissas + odd + np.uint32((1 << (23 - bits)) - 1)) >> shift
    return np.minimum(rounded, np.uint32((1 << bits) - 1)), shared


def _values(signs: Array, sizes: Array, shared: Array, bits: int) -> Array:
    """Float32 bits of codes; what falls below the normal range is +0."""
    whole: Array = sizes.astype(np.float32).view(np.int32)
    moved = whole + (shared.astype(np.int32) - np.int32(126 + bits)) * np.int32(1 << 23)
    keep = (sizes > 0) & (moved >= np.int32(0x00800000))
    bits_: Array = moved.view(np.uint32) | (signs << np.uint32(31))
    return np.where(keep, bits_, np.uint32(0)).astype(np.uint32, copy=False)


def _encode(faces: Array, bits: int) -> Array:
    """Tiles (tiles, 1024) in face order to tile bytes."""
    groups = faces.reshape(-1, 64, 16)
    sizes, shared = _magnitudes(groups, bits)
    signs = np.where(sizes > 0, groups >> np.uint32(31), np.uint32(0))
    width, per_byte = bits + 1, 8 // (bits + 1)
    codes = (sizes | (signs << np.uint32(bits))).reshape(len(groups), -1, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint32) * np.uint32(width)
    packed = np.bitwise_or.reduce(codes << shifts, axis=-1)
    return np.concatenate([shared[..., 0], packed], axis=1).astype(np.uint8)


def _decode(packed: Array, bits: int) -> Array:
    """Tile bytes to tiles (tiles, 1024) in face order."""
    width, per_byte = bits + 1, 8 // (bits + 1)
    shifts = np.arange(per_byte, dtype=np.uint32) * np.uint32(width)
    codes = packed[:, 64:, None].astype(np.uint32) >> shifts
    codes = codes.reshape(len(packed), 64, 16) & np.uint32((1 << width) - 1)
    shared = packed[:, :64, None].astype(np.uint32)
    sizes = codes & np.uint32((1 << bits) - 1)
    return _values(codes >> np.uint32(bits), sizes, shared, bits).reshape(len(packed), -1)


def _to_groups(rows: Array) -> Array:
    """(rows, columns) to (rows, groups, 16), the last group filled with zeros."""
    short = -rows.shape[1] % 16
    if short:
        rows = np.pad(rows, ((0, 0), (0, short)))
    return rows.reshape(rows.shape[0], -1, 16)


def _to_faces(band: Array) -> Array:
    """Up to 32 rows to tiles (tiles, 1024) in face order."""
    height, columns = band.shape
    image = np.zeros((32, -(-columns // 32) * 32), band.dtype)
    image[:height, :columns] = band
    faces: Array = image.reshape(2, 16, -1, 2, 16).transpose(2, 0, 3, 1, 4).reshape(-1, 1024)
    return faces


def _from_faces(faces: Array) -> Array:
    tiles = len(faces)
    image: Array = faces.reshape(tiles, 2, 2, 16, 16).transpose(1, 3, 0, 2, 4)
    return image.reshape(32, tiles * 32)


def fold_ptr(
    src: int, dst: int, size: int, images: int, channels: int, height: int, width: int, down: int,
    across: int, top: int, left: int, rows: int, columns: int, deep: int,
) -> None:  # fmt: skip
    """Images in blocks of (down, across), channels last; elements of 2 or 4 bytes."""
    kind = np.uint16 if size == 2 else np.uint32
    x = _bytes(src, size * images * channels * height * width).view(kind)
    count = images * rows * columns * down * across * deep
    out = _bytes(dst, size * count).view(kind)
    below, right = rows * down - top - height, columns * across - left - width
    padded = np.pad(
        x.reshape(images, channels, height, width),
        ((0, 0), (0, deep - channels), (top, below), (left, right)),
    )
    blocks = padded.reshape(images, deep, rows, down, columns, across)
    out[:] = blocks.transpose(0, 2, 4, 3, 5, 1).ravel()


@dataclass(frozen=True)
class _Run:
    """Neighbouring tiles of one tile row; ``first_row`` counts over all batches."""

    first_row: int
    height: int
    columns: slice
    first_tile: int
    tiles: int


def _runs(batch: int, rows: int, columns: int) -> Iterator[_Run]:
    width = _CHUNK // 32
    first_tile = 0
    for index in range(batch):
        for row in range(0, rows, 32):
            for column in range(0, columns, width):
                end = min(column + width, columns)
                tiles = -(-(end - column) // 32)
                height = min(32, rows - row)
                yield _Run(index * rows + row, height, slice(column, end), first_tile, tiles)
                first_tile += tiles


def _pieces(a: int, b: int, count: int) -> Iterator[tuple[Array, Array]]:
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        yield _words(a + 4 * start, size), _words(b + 4 * start, size)


def _words(address: int, count: int) -> Array:
    return _bytes(address, 4 * count).view(np.uint32)


def _bytes(address: int, count: int) -> Array:
    if count == 0:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))
