"""How far results are apart: Pearson correlation, relative RMS error, units in the last place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temper.errors import UsageError
from temper.formats.arrays import Array, to_numpy
from temper.formats.names import canonical_format
from temper.formats.quantization import quantize

# A reference whose deviation is below this share of its size has nothing to correlate with.
_FLAT = 1e-6
# Values compared at once, in float64: keeps huge tensors in bounded memory.
_CHUNK = 1 << 20


def pcc(a: Array, b: Array) -> float:
    """Pearson's correlation coefficient, computed in float64.

    1.0 for equal arrays, constant or empty ones included. Where both hold the same infinity or both
    NaN, the pair is left out; where only one does, the result is 0.0.
    """
    count, mean_a, mean_b = 0, 0.0, 0.0
    var_a = var_b = cov = 0.0
    equal = True
    for x, y, agree in _pairs(a, b):
        if not agree:
            return 0.0
        if x.size == 0:
            continue
        equal = equal and bool(np.array_equal(x, y))
        # Chan's parallel update of means and co-moments.
        mx, my = float(x.mean()), float(y.mean())
        dx, dy = x - mx, y - my
        total = count + x.size
        step_a, step_b, weight = mx - mean_a, my - mean_b, count * x.size / total
        var_a += float(dx @ dx) + step_a * step_a * weight
        var_b += float(dy @ dy) + step_b * step_b * weight
        cov += float(dx @ dy) + step_a * step_b * weight
        mean_a += step_a * x.size / total
        mean_b += step_b * x.size / total
        count = total
    if equal:
        return 1.0
    if var_a == 0.0 or var_b == 0.0:
        return 0.0
    return float(np.clip(cov / math.sqrt(var_a) / math.sqrt(var_b), -1.0, 1.0))


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a result follows its reference: ``actual`` is about ``scale * expected + offset``.

    The correlation alone sees neither scale nor offset. ``offset`` is relative to the RMS of the
    reference. ``degenerate`` says why there is nothing to correlate with; ``pcc``, ``scale`` and
    ``offset`` are then None, and ``relative_rms`` alone counts.
    """

    pcc: float | None
    scale: float | None
    offset: float | None
    relative_rms: float
    degenerate: str = ""


def agreement(actual: Array, expected: Array) -> Agreement:
    """Correlation, scale, offset and error of a result; a flat reference is told, not scored."""
    error = relative_rms(actual, expected)
    first, second = _same_shape(actual, expected)
    x, y = first.astype(np.float64), second.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    if y.size < 2:
        return Agreement(None, None, None, error, f"the reference has {y.size} finite values")
    size = math.sqrt(float(y @ y) / y.size)
    spread = float(y.std())
    if spread <= _FLAT * size or size == 0.0:
        return Agreement(None, None, None, error, "the reference has no variance")
    scale = float((x - x.mean()) @ (y - y.mean())) / (y.size * spread * spread)
    offset = (float(x.mean()) - scale * float(y.mean())) / size
    return Agreement(pcc(actual, expected), scale, offset, error)


def relative_rms(actual: Array, expected: Array) -> float:
    """RMS of the error over RMS of the expected values; 0.0 is equal.

    Infinite where ``expected`` is all zero and ``actual`` is not, or where they disagree about
    infinities or NaN.
    """
    error = size = 0.0
    for x, y, agree in _pairs(actual, expected):
        if not agree:
            return math.inf
        difference = x - y
        error += float(difference @ difference)
        size += float(y @ y)
    if error == 0.0:
        return 0.0
    return math.sqrt(error / size) if size > 0.0 else math.inf


def max_ulp(actual: Array, expected: Array, fmt: object = "float32") -> float:
    """The largest distance in representable values of float32 or bfloat16 (NaN against NaN is 0).

    Infinite where only one of the two is NaN.
    """
    name = canonical_format(fmt, ("float32", "bfloat16"))
    first, second = _same_shape(actual, expected)
    most = 0
    for start in range(0, first.size, _CHUNK):
        x = quantize(first[start : start + _CHUNK], name)
        y = quantize(second[start : start + _CHUNK], name)
        nan = np.isnan(x)
        if not np.array_equal(nan, np.isnan(y)):
            return math.inf
        distance = np.abs(_ordinal(x, name) - _ordinal(y, name))[~nan]
        most = max(most, int(distance.max(initial=0)))
    return float(most)


def _ordinal(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Integers in the order of the values, neighbours one apart, both zeros at 0."""
    bits = values.view(np.uint32).astype(np.int64)
    magnitude = (bits & 0x7FFFFFFF) >> (16 if name == "bfloat16" else 0)
    return np.where(bits >> 31 != 0, -magnitude, magnitude)


def _pairs(a: Array, b: Array) -> Iterator[tuple[NDArray[Any], NDArray[Any], bool]]:
    """Finite pairs in float64, and whether the other pairs agree."""
    first, second = _same_shape(a, b)
    for start in range(0, first.size, _CHUNK):
        x = first[start : start + _CHUNK].astype(np.float64)
        y = second[start : start + _CHUNK].astype(np.float64)
        finite = np.isfinite(x) & np.isfinite(y)
        if finite.all():
            yield x, y, True
        else:
            agree = np.array_equal(x[~finite], y[~finite], equal_nan=True)
            yield x[finite], y[finite], agree


def _same_shape(a: Array, b: Array) -> tuple[NDArray[Any], NDArray[Any]]:
    first, second = to_numpy(a), to_numpy(b)
    if first.shape != second.shape:
        raise UsageError(f"arrays of shapes {first.shape} and {second.shape} cannot be compared")
    return first.reshape(-1), second.reshape(-1)
