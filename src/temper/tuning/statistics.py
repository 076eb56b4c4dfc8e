"""Samples to figures: summaries, bootstrap intervals, significance, two modes, steadiness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 2000
# The best split of a normal sample explains 2/pi = 0.64 of its variance, of a uniform one 0.75.
_TWO_MODES = 0.85
# Modes closer than this share of the median are no news.
_MODES_APART = 0.10
_SMALL_MODE = 0.10
# A warm-up is over when its last calls lie this close together...
_STEADY_SPREAD = 0.10
_STEADY_CALLS = 3
# ... or when it has stopped getting faster.
_STILL_FALLING = 0.05


@dataclass(frozen=True)
class TrialSummary:
    """Figures of trials; percentiles over all calls, mean and deviation over the trials."""

    calls: int
    trials: int
    mean: float
    deviation: float
    median: float
    p90: float
    p99: float
    least: float
    most: float
    ci_low: float  # 95% bootstrap interval of the mean
    ci_high: float

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


def summarise(trials: Sequence[Sequence[float]]) -> TrialSummary:
    """Figures of several trials of one or more calls each."""
    means = np.array([np.mean(t) for t in trials])
    calls = np.concatenate([np.asarray(t, dtype=float) for t in trials])
    low, high = bootstrap_mean(means if len(means) >= 5 else calls)
    median, p90, p99 = np.percentile(calls, [50, 90, 99])
    spread = means if len(means) > 1 else calls
    return TrialSummary(
        len(calls),
        len(means),
        float(means.mean()),
        float(spread.std(ddof=1)) if len(spread) > 1 else 0.0,
        float(median),
        float(p90),
        float(p99),
        float(calls.min()),
        float(calls.max()),
        low,
        high,
    )


def bootstrap_mean(
    values: Sequence[float] | NDArray[Any], level: float = 0.95
) -> tuple[float, float]:
    """Percentile interval of the mean; the generator is seeded, so the same in, the same out."""
    data = np.asarray(values, dtype=float)
    if len(data) < 2:
        return float(data.mean()), float(data.mean())
    picks = np.random.default_rng(0).integers(0, len(data), (_RESAMPLES, len(data)))
    tail = (1 - level) / 2
    low, high = np.quantile(data[picks].mean(axis=1), [tail, 1 - tail])
    return float(low), float(high)


@dataclass(frozen=True)
class TimesComparison:
    """Two sets of times: how many times faster the second is, and whether that is chance."""

    speedup: float  # medians, first over second
    low: float
    high: float
    p_value: float

    @property
    def significant(self) -> bool:
        return self.p_value < 0.01

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "significant": self.significant}


def compare(first: Sequence[float], second: Sequence[float]) -> TimesComparison:
    """Mann-Whitney for chance (no shape assumed), a bootstrap for the ratio of medians."""
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if np.array_equal(a, b):
        return TimesComparison(1.0, 1.0, 1.0, 1.0)
    from scipy.stats import mannwhitneyu

    p_value = float(mannwhitneyu(a, b, alternative="two-sided").pvalue)
    rng = np.random.default_rng(0)
    top = np.median(a[rng.integers(0, len(a), (_RESAMPLES, len(a)))], axis=1)
    bottom = np.median(b[rng.integers(0, len(b), (_RESAMPLES, len(b)))], axis=1)
    low, high = np.quantile(top / bottom, [0.025, 0.975])
    return TimesComparison(float(np.median(a) / np.median(b)), float(low), float(high), p_value)


def two_modes(values: Sequence[float]) -> tuple[float, float] | None:
    """The centres of two separate groups of samples, or None when there is one group."""
    data = np.sort(np.asarray(values, dtype=float))
    count = len(data)
    total = float(data.var()) * count
    if count < 10 or total == 0.0:
        return None
    sums = np.cumsum(data)
    sizes = np.arange(1, count)
    left = sums[:-1] / sizes
    right = (sums[-1] - sums[:-1]) / (count - sizes)
    between = sizes * (count - sizes) / count * (right - left) ** 2
    best = int(np.argmax(between))
    apart = right[best] - left[best]
    smaller = min(sizes[best], count - sizes[best]) / count
    if between[best] / total < _TWO_MODES or smaller < _SMALL_MODE:
        return None
    if apart < _MODES_APART * float(np.median(data)):
        return None
    return float(left[best]), float(right[best])


def steady(values: Sequence[float]) -> bool:
    """Whether the last calls of a warm-up are alike, or at least no longer getting faster."""
    if len(values) < _STEADY_CALLS:
        return False
    last = np.asarray(values[-_STEADY_CALLS:], dtype=float)
    if (last.max() - last.min()) <= _STEADY_SPREAD * float(np.median(last)):
        return True
    if len(values) < 2 * _STEADY_CALLS:
        return False
    # On a busy host calls never lie close together, but their fastest stops improving. The
    # first call compiles and is left out.
    return float(last.min()) >= (1 - _STILL_FALLING) * min(values[1:-_STEADY_CALLS])
