"""Verdicts: how many samples, which measure, and what counts as a difference."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tiny import flat, make, no_batch, recommender

from temper.cost import OpCost
from temper.cost.bands import ratio
from temper.tuning import sample as sampling
from temper.tuning.accuracy import floors, judged, loss, shift
from temper.tuning.choice import Difference, choose
from temper.tuning.engine import Engine, Setting


def test_one_score_a_sample_takes_as_many_samples_as_the_interval_needs() -> None:
    engine = Engine(recommender, "n150", floors(0.99))
    assert engine.samples == engine.expected.numel() == sampling.VALUES
    assert engine.note == ""
    assert engine.measure(Setting(level=1), {})["pcc"] > 0.99


def test_the_sample_does_not_depend_on_how_fast_the_machine_is() -> None:
    def slow(batch: int = 1) -> Any:
        time.sleep(0.2)
        return make(batch)

    assert Engine(slow, "n150", floors()).samples == Engine(make, "n150", floors()).samples == 25


def test_the_interval_of_a_correlation_is_scipys() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    y = x + 0.2 * rng.normal(size=200)
    found = stats.pearsonr(x, y)
    low, high = sampling.Sample(1, torch.zeros(200)).interval(float(found.statistic))
    theirs = found.confidence_interval(0.95)
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=1e-4)


def test_outputs_without_variance_are_judged_by_their_error_and_it_is_said() -> None:
    engine = Engine(flat, "n150", floors(0.99))
    assert "no variance" in engine.note
    assert "RMS" in engine.note
    found = engine.measure(Setting(level=1), {})
    assert set(found) == {"rms"}
    assert engine.met(found)
    assert not engine.met({"rms": 0.2})


def test_a_handful_of_values_is_no_correlation() -> None:
    wanted, note = judged(floors(0.99), torch.randn(8))
    assert [f.name for f in wanted] == ["rms"]
    assert "8 values" in note


def test_a_scaled_output_correlates_and_still_misses_the_floor() -> None:
    expected = torch.randn(4000, generator=torch.Generator().manual_seed(0))
    found = {f.name: f.measure(expected * 1.5, expected) for f in floors(0.99)}
    assert found["pcc"] == pytest.approx(1.0)
    assert shift(expected * 1.5, expected) == pytest.approx(0.5, abs=1e-3)
    assert not all(f.met(found[f.name]) for f in floors(0.99))


def test_an_error_of_the_size_of_a_floor_costs_what_the_floor_says() -> None:
    generator = torch.Generator().manual_seed(0)
    expected = torch.randn(200_000, generator=generator)
    noisy = expected + 0.1 * torch.randn(200_000, generator=generator)
    figures = {f.name: f.measure(noisy, expected) for f in floors(0.9, max_rms=1.0)}
    assert loss({"rms": figures["rms"]}) == pytest.approx(loss(figures), rel=0.05)


def test_a_callable_without_a_batch_is_judged_on_its_inputs() -> None:
    assert Engine(no_batch, "n150", floors()).sample.text == "the given inputs, 256 output values"


def _op(time_ns: float, bound: str = "dram") -> OpCost:
    return OpCost(time_ns, time_ns * 0.8, time_ns * 1.25, 10.0, bound, 64)


def test_equal_programs_have_no_band_between_them_and_shared_ops_cancel() -> None:
    ops = [_op(100.0), _op(300.0, "compute")]
    assert ratio(ops, ops) == pytest.approx((1.0, 1.0, 1.0))
    faster = [_op(100.0), _op(270.0, "compute")]
    value, low, high = ratio(faster, ops)
    assert low < value < high
    assert high / low < (1.25 / 0.8) ** 0.9  # either band alone is as wide as 1.25 / 0.8


def test_among_equals_the_most_accurate_and_then_the_simplest_is_taken() -> None:
    # name: (time, loss, effort); times within 5% are equal here.
    made = {"quick": (1.0, 0.008, 3), "exact": (1.02, 0.001, 2), "plain": (1.04, 0.00101, 0),
            "slow": (1.4, 0.0, 0)}  # fmt: skip

    def differ(one: str, other: str) -> Difference:
        value = made[one][0] / made[other][0]
        return Difference(value, value / 1.05, value * 1.05)

    taken = choose(list(made), differ, lambda n: made[n][1], lambda n: (made[n][2],))
    assert taken == "plain"
