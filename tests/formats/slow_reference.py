"""The format rules in plain Python integers: slow, and independent of the code under test."""

from __future__ import annotations

import struct

GROUP = 16
MAGNITUDE_BITS = {"bfloat8_b": 7, "bfloat4_b": 3, "bfloat2_b": 1}
CODE_BYTES = {"bfloat8_b": 1024, "bfloat4_b": 512, "bfloat2_b": 256}


def bits_of(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def bfloat16_bits(x: int) -> int:
    """Nearest, ties to even on bit 16; any NaN becomes the one quiet NaN."""
    if (x >> 23) & 0xFF == 255 and x & 0x7FFFFF:
        return 0x7FC0
    low, high = x & 0xFFFF, x >> 16
    if low > 0x8000 or (low == 0x8000 and high % 2 == 1):
        high += 1
    return high


def encode_group(group: list[int], fmt: str) -> tuple[int, list[int]]:
    """Shared exponent and codes of up to 16 float32 bit patterns."""
    bits = MAGNITUDE_BITS[fmt]
    shared = max((x >> 23) & 0xFF for x in group)
    codes = []
    for x in group:
        exponent = (x >> 23) & 0xFF
        mantissa = (1 << 23) + x % (1 << 23)
        for _ in range(shared - exponent):
            mantissa //= 2
        unit = 1 << (24 - bits)
        size, rest = divmod(mantissa, unit)
        if 2 * rest > unit or (2 * rest == unit and size % 2 == 1):
            size += 1
        size = min(size, (1 << bits) - 1)
        if exponent == 0:
            size = 0
        codes.append(size + ((1 << bits) if size and x >> 31 else 0))
    return shared, codes


def decode(code: int, shared: int, fmt: str) -> int:
    """Float32 bits of one code."""
    bits = MAGNITUDE_BITS[fmt]
    sign, size = divmod(code, 1 << bits)
    if size == 0:
        return 0
    exponent = shared
    while size < 1 << (bits - 1):
        size *= 2
        exponent -= 1
    if exponent <= 0:
        return 0
    fraction = (size - (1 << (bits - 1))) << (23 - (bits - 1))
    return (sign << 31) | (exponent << 23) | fraction


def quantize_row(row: list[int], fmt: str) -> list[int]:
    if fmt == "bfloat16":
        return [bfloat16_bits(x) << 16 for x in row]
    result = []
    for start in range(0, len(row), GROUP):
        shared, codes = encode_group(row[start : start + GROUP], fmt)
        result += [decode(code, shared, fmt) for code in codes]
    return result


def pack_matrix(rows: list[list[int]], fmt: str) -> list[bytes]:
    """Tile bytes of a matrix of float32 bit patterns, one bytes object a tile."""
    height, width = -(-len(rows) // 32) * 32, -(-len(rows[0]) // 32) * 32
    padded = [[*row, *[0] * (width - len(row))] for row in rows]
    padded += [[0] * width for _ in range(height - len(rows))]
    tiles = []
    for top in range(0, height, 32):
        for left in range(0, width, 32):
            tiles.append(_pack_tile([row[left : left + 32] for row in padded[top : top + 32]], fmt))
    return tiles


def _pack_tile(tile: list[list[int]], fmt: str) -> bytes:
    groups = [
        tile[face_row + row][face_column : face_column + 16]
        for face_row in (0, 16)
        for face_column in (0, 16)
        for row in range(16)
    ]
    if fmt == "bfloat16":
        return b"".join(struct.pack("<16H", *map(bfloat16_bits, group)) for group in groups)
    encoded = [encode_group(group, fmt) for group in groups]
    stream = [code for _, codes in encoded for code in codes]
    width = MAGNITUDE_BITS[fmt] + 1
    each = 8 // width
    packed = bytes(
        sum(stream[i + k] << (k * width) for k in range(each)) for i in range(0, len(stream), each)
    )
    assert len(packed) == CODE_BYTES[fmt]
    return bytes(shared for shared, _ in encoded) + packed
