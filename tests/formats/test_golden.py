"""Every conversion equals ttnn's own to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from temper.formats import pack, padded_shape, quantize, unpack

VECTORS = np.load(Path(__file__).parent / "golden" / "blockfloat.npz")
CASES = [name.removesuffix(".in") for name in VECTORS if name.endswith(".in")]
BLOCK = ["bfloat8_b", "bfloat4_b"]


def differing_bits(a: np.ndarray, b: np.ndarray) -> int:
    assert a.shape == b.shape
    return int((a.view(np.uint8) != b.view(np.uint8)).sum())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("fmt", BLOCK)
def test_packed_tiles_equal_the_golden_bytes(path: str, case: str, fmt: str) -> None:
    packed = pack(VECTORS[f"{case}.in"], fmt)
    assert differing_bits(packed, VECTORS[f"{case}.{fmt}.packed"]) == 0


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("fmt", BLOCK)
def test_unpacked_values_equal_the_golden_bits(path: str, case: str, fmt: str) -> None:
    expected = VECTORS[f"{case}.{fmt}.dequant"]
    values = unpack(VECTORS[f"{case}.{fmt}.packed"], fmt, expected.shape)
    assert differing_bits(values, expected) == 0


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("fmt", BLOCK)
def test_quantised_values_equal_the_golden_bits(path: str, case: str, fmt: str) -> None:
    values = quantize(VECTORS[f"{case}.in"], fmt)
    assert differing_bits(values, VECTORS[f"{case}.{fmt}.dequant"]) == 0


@pytest.mark.parametrize("case", CASES)
def test_bfloat16_equals_the_golden_bits(path: str, case: str) -> None:
    source, rows = VECTORS[f"{case}.in"], VECTORS[f"{case}.bfloat16.rowmajor"]
    tiles = VECTORS[f"{case}.bfloat16.packed"]
    expected = (rows.astype(np.uint32) << 16).view(np.float32)
    assert differing_bits(quantize(source, "bfloat16"), expected) == 0
    assert differing_bits(pack(source, "bf16"), tiles.reshape(len(tiles), -1).view(np.uint8)) == 0
    assert differing_bits(unpack(tiles.view(np.uint8), "bf16", source.shape), expected) == 0
    row_major = pack(source, "bf16", layout="row_major").view(np.uint16)
    assert np.array_equal(row_major.reshape(rows.shape), rows)


@pytest.mark.parametrize("case", CASES)
def test_padded_shapes_equal_the_golden_ones(case: str) -> None:
    shape = VECTORS[f"{case}.in"].shape
    assert padded_shape(shape) == tuple(VECTORS[f"{case}.bfloat8_b.padded_shape"])
