"""Properties that hold for any array: idempotence, round trips, isolation, error bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from temper.formats import pack, quantize, tilize, unpack, untilize

BLOCK_BITS = {"bfloat8_b": 7, "bfloat4_b": 3, "bfloat2_b": 1}
FLOAT_FORMATS = ["float32", "bfloat16", *BLOCK_BITS]
any_bits = hnp.arrays(
    np.uint32,
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=40),
    elements=st.integers(0, 2**32 - 1),
)
normal_floats = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=40),
    elements=st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False),
)
formats = st.sampled_from(FLOAT_FORMATS)


def bits(values: np.ndarray) -> np.ndarray:
    return values.view(np.uint32)


@settings(max_examples=60, deadline=None)
@given(any_bits, formats)
def test_quantising_twice_changes_nothing(source: np.ndarray, fmt: str) -> None:
    once = quantize(source.view(np.float32), fmt)
    assert np.array_equal(bits(quantize(once, fmt)), bits(once))


@settings(max_examples=60, deadline=None)
@given(any_bits, formats)
def test_unpacking_a_pack_gives_the_quantised_values(source: np.ndarray, fmt: str) -> None:
    values = source.view(np.float32)
    packed = pack(values, fmt)
    unpacked = unpack(packed, fmt, values.shape)
    assert unpacked.shape == values.shape
    assert np.array_equal(bits(unpacked), bits(quantize(values, fmt)))
    assert np.array_equal(pack(unpacked, fmt), packed)


@settings(max_examples=60, deadline=None)
@given(any_bits)
def test_untilizing_a_tilize_gives_the_values_back(source: np.ndarray) -> None:
    for dtype in (np.uint32, np.uint16, np.uint8):
        values = source.astype(dtype)
        assert np.array_equal(untilize(tilize(values), values.shape), values)


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.uint32, (5, 50), elements=st.integers(0, 2**32 - 1)),
    st.integers(0, 4),
    st.integers(0, 49),
    st.integers(0, 2**32 - 1),
    st.sampled_from(list(BLOCK_BITS)),
)
def test_a_value_affects_only_its_own_group(
    source: np.ndarray, row: int, column: int, value: int, fmt: str
) -> None:
    changed = source.copy()
    changed[row, column] = value
    before = bits(quantize(source.view(np.float32), fmt))
    after = bits(quantize(changed.view(np.float32), fmt))
    others = np.ones(source.shape, bool)
    others[row, column // 16 * 16 : column // 16 * 16 + 16] = False
    assert np.array_equal(before[others], after[others])


@settings(max_examples=60, deadline=None)
@given(normal_floats)
def test_errors_are_bounded_and_shrink_with_more_bits(values: np.ndarray) -> None:
    columns = values.shape[-1]
    groups = [values[..., i : i + 16] for i in range(0, columns, 16)]
    shared = np.concatenate(
        [np.broadcast_to(np.abs(g).max(-1, keepdims=True), g.shape) for g in groups], axis=-1
    ).astype(np.float64)
    exponent = np.floor(np.log2(np.where(shared > 0, shared, 1.0)))
    least = {}
    for fmt, n in BLOCK_BITS.items():
        step = 2.0 ** (exponent - (n - 1))
        error = np.abs(quantize(values, fmt).astype(np.float64) - values)
        # Half a step, and up to a whole one where the group's largest value saturates.
        saturated = np.abs(values) > step * (2**n - 1)
        # Bits lost before rounding move a tie by less than 2^-23 of the group's scale.
        bound = np.where(saturated, step, step / 2) + 2.0 ** (exponent - 23)
        assert (error <= bound).all()
        least[fmt] = bound
    assert (least["bfloat8_b"] <= least["bfloat4_b"]).all()
    assert (least["bfloat4_b"] <= least["bfloat2_b"]).all()
    bf16 = np.abs(quantize(values, "bfloat16").astype(np.float64) - values)
    assert (bf16 <= np.abs(values) * 2.0**-8).all()


@pytest.mark.parametrize("fmt", list(BLOCK_BITS))
def test_scaling_by_a_power_of_two_scales_the_result(fmt: str) -> None:
    values = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    assert np.array_equal(quantize(values * 1024, fmt), quantize(values, fmt) * 1024)
