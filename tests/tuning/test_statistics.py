"""Figures of samples, against numpy, scipy and distributions that are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from temper.tuning.statistics import bootstrap_mean, compare, steady, summarise, two_modes


def test_a_summary_agrees_with_numpy() -> None:
    trials = np.random.default_rng(1).gamma(9, 2, (8, 50))
    made = summarise([list(t) for t in trials])
    assert made.calls == 400
    assert made.trials == 8
    assert made.mean == pytest.approx(trials.mean())
    assert made.deviation == pytest.approx(trials.mean(axis=1).std(ddof=1))
    assert made.p99 == pytest.approx(np.percentile(trials, 99))
    assert made.ci_low < made.mean < made.ci_high


def test_a_bootstrap_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(100):
        low, high = bootstrap_mean(rng.normal(10, 3, 40))
        held += low <= 10 <= high
    assert 85 <= held <= 100


@given(st.lists(st.floats(1.0, 1e9), min_size=2, max_size=30))
def test_an_interval_lies_within_the_samples(values: list[float]) -> None:
    low, high = bootstrap_mean(values)
    assert min(values) * (1 - 1e-9) <= low <= high <= max(values) * (1 + 1e-9)


def test_two_groups_are_seen_and_one_group_is_not() -> None:
    rng = np.random.default_rng(3)
    groups = two_modes([*rng.normal(10, 0.3, 60), *rng.normal(20, 0.3, 40)])
    assert groups == pytest.approx((10, 20), rel=0.05)
    assert two_modes(rng.normal(10, 1, 200)) is None
    assert two_modes(rng.uniform(9, 11, 200)) is None
    assert two_modes([5.0] * 50) is None


def test_a_real_difference_is_significant_and_none_is_not() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(100, 5, 200), rng.normal(80, 5, 200)
    found = compare(a, b)
    assert found.significant
    assert found.speedup == pytest.approx(1.25, rel=0.03)
    assert not compare(a, rng.normal(100, 5, 200)).significant


def test_a_warm_up_is_over_when_its_last_calls_are_alike_or_no_longer_fall() -> None:
    assert not steady([100.0, 10.0])
    assert steady([1000.0, 50.0, 10.0, 10.1, 10.2])
    assert not steady([1000.0, 50.0, 30.0, 20.0, 14.0, 10.0])
    assert steady([1000.0, 10.0, 20.0, 12.0, 18.0, 10.0, 25.0, 14.0])
