"""Fidelity phases, the accumulator, and error measures against direct formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from temper.errors import UsageError
from temper.formats import (
    mask_operand,
    matmul_reference,
    max_ulp,
    operand_mask,
    pcc,
    quantize,
    relative_rms,
    round_accumulator,
    split_operand,
)
from temper.formats.measures import agreement

RANDOM = np.random.default_rng(2)
A = quantize(RANDOM.standard_normal((20, 48)).astype(np.float32), "bfloat16")
B = quantize(RANDOM.standard_normal((48, 12)).astype(np.float32), "bfloat16")


def test_masks_keep_the_bits_of_each_operand(path: str) -> None:
    assert operand_mask("weights", "LoFi") == 0xFFF80000
    assert operand_mask("activations", "hifi2") == 0xFFFE0000
    assert operand_mask("weights", "HiFi2") is None
    kept = mask_operand(A, "weights", "LoFi").view(np.uint32)
    assert np.array_equal(kept, A.view(np.uint32) & np.uint32(0xFFF80000))
    assert np.array_equal(mask_operand(torch.from_numpy(A), "weights", "HiFi4").numpy(), A)
    high, low = split_operand(A, "activations")
    assert np.array_equal(high + low, A)
    with pytest.raises(UsageError, match="unknown operand"):
        operand_mask("srcA", "LoFi")  # type: ignore[arg-type]


def test_hifi4_of_bfloat16_is_exact_but_for_the_accumulator() -> None:
    exact = A.astype(np.float64) @ B.astype(np.float64)
    assert relative_rms(matmul_reference(A, B, "HiFi4", fp32_acc=True), exact) < 1e-6


def test_bfloat8_weights_lose_nothing_at_hifi2_and_bfloat4_nothing_at_lofi() -> None:
    activations = quantize(A, "bfloat8_b")
    full = matmul_reference(activations, quantize(B, "bfloat8_b"), "HiFi4", fp32_acc=True)
    half = matmul_reference(activations, quantize(B, "bfloat8_b"), "HiFi2", fp32_acc=True)
    assert np.array_equal(full, half)
    full = matmul_reference(activations, quantize(B, "bfloat4_b"), "HiFi4", fp32_acc=True)
    low = matmul_reference(activations, quantize(B, "bfloat4_b"), "LoFi", fp32_acc=True)
    assert np.array_equal(full, low)


def test_each_fidelity_is_at_least_as_close_as_the_one_below() -> None:
    exact = A.astype(np.float64) @ B.astype(np.float64)
    names = ["LoFi", "HiFi2", "HiFi3", "HiFi4"]
    errors = [relative_rms(matmul_reference(A, B, name, fp32_acc=True), exact) for name in names]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 10 * errors[2]


def test_a_16_bit_accumulator_rounds_after_every_16_products() -> None:
    activations, weights = np.ones((1, 512 * 16), np.float32), np.ones((512 * 16, 1), np.float32)
    # In steps of 16 a bfloat16 sum (8 significant bits) stops growing at 16 * 2^8.
    assert matmul_reference(activations, weights)[0, 0] == 4096.0
    assert matmul_reference(activations, weights, fp32_acc=True)[0, 0] == 8192.0
    assert round_accumulator(np.float32(257.0)) == 256.0


def test_native_accumulation_equals_add_then_round() -> None:
    from temper import kernels

    for count in (1, 16, 1000, 1 << 17):
        total = RANDOM.standard_normal(count).astype(np.float32)
        part = RANDOM.standard_normal(count).astype(np.float32)
        expected = quantize(total + part, "bfloat16")
        kernels.add_round_bf16_ptr(total.ctypes.data, part.ctypes.data, count)
        assert np.array_equal(total, expected)


def test_pcc_is_pearsons_coefficient() -> None:
    x, y = RANDOM.standard_normal((2, 100_000))
    assert pcc(x, x + y) == pytest.approx(np.corrcoef(x, x + y)[0, 1], abs=1e-12)
    assert pcc(x, -x) == pytest.approx(-1.0)
    assert pcc(torch.from_numpy(x).to(torch.bfloat16), x) > 0.9999


def test_pcc_over_chunks_equals_pcc_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from temper.formats import measures

    x, y = RANDOM.standard_normal((2, 10_000)) + 1000.0
    monkeypatch.setattr(measures, "_CHUNK", 777)
    assert pcc(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)


def test_degenerate_comparisons_have_defined_results() -> None:
    ones, zeros = np.ones(5), np.zeros(5)
    assert pcc(ones, ones) == 1.0
    assert pcc(ones, np.arange(5)) == 0.0
    assert pcc(np.empty(0), np.empty(0)) == 1.0
    assert relative_rms(zeros, zeros) == 0.0
    assert relative_rms(ones, zeros) == math.inf
    odd = np.array([np.nan, np.inf, 1.0, 2.0])
    assert pcc(odd, odd) == 1.0
    assert relative_rms(odd, odd) == 0.0
    assert pcc(odd, np.array([0.0, np.inf, 1.0, 2.0])) == 0.0
    assert relative_rms(odd, np.array([np.nan, -np.inf, 1.0, 2.0])) == math.inf
    with pytest.raises(UsageError, match="cannot be compared"):
        pcc(ones, np.ones(4))


def test_relative_rms_is_error_over_size() -> None:
    assert relative_rms(np.array([3.0, 4.4]), np.array([3.0, 4.0])) == pytest.approx(0.4 / 5.0)


def test_ulps_count_representable_values() -> None:
    one = np.float32(1.0)
    assert max_ulp(one, np.nextafter(one, np.float32(2))) == 1
    assert max_ulp(np.float32(0.0), np.float32(-0.0)) == 0
    assert max_ulp(np.float32(1e-45), np.float32(-1e-45)) == 2
    assert max_ulp(np.float32(1.0), np.float32(1.0078125), "bfloat16") == 1
    assert max_ulp(np.float32(np.nan), np.float32(np.nan)) == 0
    assert max_ulp(np.float32(np.nan), one) == math.inf


def test_agreement_sees_the_scale_and_the_offset_that_a_correlation_does_not() -> None:
    expected = np.random.default_rng(3).normal(5.0, 2.0, 1000)
    found = agreement(1.5 * expected + 0.25, expected)
    assert found.pcc == pytest.approx(1.0)
    assert found.scale == pytest.approx(1.5)
    assert found.offset == pytest.approx(0.25 / np.sqrt(np.mean(expected**2)))


def test_a_reference_without_variance_is_told_and_not_scored() -> None:
    for flat in (np.zeros(50), np.full(50, 3.0), np.full(50, 3.0) + 1e-9 * np.arange(50)):
        found = agreement(flat + 1.0, flat)
        assert found.degenerate == "the reference has no variance"
        assert found.pcc is None
        assert found.relative_rms > 0.3
    assert "1 finite" in agreement(np.ones(1), np.ones(1)).degenerate
