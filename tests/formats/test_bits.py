"""Adversarial bit patterns against the slow reference, on every path."""

from __future__ import annotations

import numpy as np
import pytest
from slow_reference import MAGNITUDE_BITS, decode, pack_matrix, quantize_row

from temper.formats import pack, quantize, unpack

FORMATS = ["bfloat16", "bfloat8_b", "bfloat4_b", "bfloat2_b"]
SPECIAL = [
    0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x80800001, 0x3F800000, 0xBF800000,
    0x3FFFFFFF, 0x3FFF8000, 0x3F808000, 0x3F818000, 0x3F810000, 0x3F818001, 0x7F7FFFFF, 0xFF7FFFFF,
    0x7F800000, 0xFF800000, 0x7F800001, 0xFFC00000, 0x7FFFFFFF, 0x7F7F8000, 0x7F7F7FFF, 0x33800001,
]  # fmt: skip


def patterns(seed: int, rows: int, columns: int) -> np.ndarray:
    """Rows of mixed difficulty: any bits, near neighbours, ties, specials among normal values."""
    random = np.random.default_rng(seed)
    bits = random.integers(0, 2**32, (rows, columns), dtype=np.uint32)
    near = (bits & 0x807FFFFF) | (random.integers(110, 135, bits.shape).astype(np.uint32) << 23)
    ties = near & np.uint32(0xFFFF8000)
    special = np.where(random.random(bits.shape) < 0.05, random.choice(SPECIAL, bits.shape), near)
    low = (bits & 0x807FFFFF) | (random.integers(0, 9, bits.shape).astype(np.uint32) << 23)
    kinds = [bits, near, ties, special.astype(np.uint32), low]
    return np.stack([kinds[row % len(kinds)][row] for row in range(rows)])


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("columns", [1, 15, 16, 17, 48, 77])
def test_quantising_matches_the_rules(path: str, fmt: str, columns: int) -> None:
    bits = patterns(columns, 60, columns)
    expected = [quantize_row([int(x) for x in row], fmt) for row in bits]
    result = quantize(bits.view(np.float32), fmt).view(np.uint32)
    assert result.tolist() == expected


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("shape", [(1, 1), (33, 65), (32, 32), (70, 300)])
def test_packing_matches_the_rules(path: str, fmt: str, shape: tuple[int, int]) -> None:
    bits = patterns(sum(shape), *shape)
    expected = pack_matrix([[int(x) for x in row] for row in bits], fmt)
    packed = pack(bits.view(np.float32), fmt)
    assert [tile.tobytes() for tile in packed] == expected
    values = unpack(packed, fmt, shape).view(np.uint32)
    assert values.tolist() == [quantize_row([int(x) for x in row], fmt) for row in bits]


@pytest.mark.parametrize("fmt", list(MAGNITUDE_BITS))
def test_unpacking_any_bytes_matches_the_rules(path: str, fmt: str) -> None:
    """Foreign tiles may hold codes that the packer never writes, e.g. values below the range."""
    width = MAGNITUDE_BITS[fmt] + 1
    random = np.random.default_rng(5)
    tile = random.integers(0, 256, 64 + 128 * width, dtype=np.uint8)
    tile[:32] %= 9
    values = unpack(tile, fmt, (32, 32)).view(np.uint32)
    for row in range(32):
        for column in range(32):
            group = (row // 16 * 2 + column // 16) * 16 + row % 16
            index = group * 16 + column % 16
            byte, slot = divmod(index * width, 8)
            code = (int(tile[64 + byte]) >> slot) & ((1 << width) - 1)
            assert values[row, column] == decode(code, int(tile[group]), fmt)


def test_tf32_truncates_and_flushes_denormals(path: str) -> None:
    bits = patterns(3, 40, 50).reshape(-1)
    result = quantize(bits.view(np.float32), "tf32").view(np.uint32)
    for x, y in zip(bits.tolist(), result.tolist(), strict=True):
        assert y == (x & 0x80000000 if (x >> 23) & 0xFF == 0 else x - x % 8192)


def test_threads_do_not_change_bits() -> None:
    """Large enough for two threads and for stores past the caches."""
    bits = np.tile(patterns(9, 64, 1024), (140, 1))
    for fmt in FORMATS:
        values = quantize(bits.view(np.float32), fmt)
        part = quantize(bits[:64].view(np.float32), fmt).view(np.uint32)
        assert np.array_equal(values.view(np.uint32), np.tile(part, (140, 1)))
        packed = pack(bits.view(np.float32), fmt)
        again = unpack(packed, fmt, bits.shape)
        assert np.array_equal(again.view(np.uint32), values.view(np.uint32))
