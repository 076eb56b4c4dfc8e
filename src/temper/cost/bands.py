"""Bands: how far a measured time may lie from a modelled one, for an op and for a program.

An op's band is a pair of quantiles of the errors on sources that were left out of the fit. They
depend on the family and on novelty, that is how far the nearest fitted row is: rows near a fitted
one are predicted several times better than others. Every source counts the same.

A program's band adds up errors that belong together: those of equal ops are equal, those of one
kernel and of one family are correlated as they were on left-out sources.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from temper.cost.records import OpCost

Cell = tuple[int, int]  # logarithms to base 2 of size and cores
NOVELTY = ("near", "same kernel", "other kernel")
# Beyond what was measured on an architecture a band is this much wider (in logarithm).
EXTRAPOLATED = 1.5
# An op this many times larger than any measured one of its family is extrapolated.
BEYOND = 8.0
# Correlation of two ops' errors within one left-out source: two kernels of a family, one kernel.
FAMILY_SHARE, KERNEL_SHARE = 0.10, 0.31


def cell_of(size: float, cores: int) -> Cell:
    """Where an op lies among those of its kernel."""
    return round(math.log2(max(size, 1.0))), round(math.log2(max(cores, 1)))


@dataclass(frozen=True)
class MeasuredCells:
    """What was measured of one family on one architecture: cells of each kernel variant."""

    cells: Mapping[tuple[str, ...], frozenset[Cell]]
    known: dict[Hashable, str] = field(default_factory=dict)

    def novelty(self, variant: tuple[str, ...], size: float, cores: int) -> str:
        """How far the nearest measured configuration is."""
        cell = cell_of(size, cores)
        key = (variant, cell)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._novelty(variant, cell)
        return found

    def _novelty(self, variant: tuple[str, ...], cell: Cell) -> str:
        measured = self.cells.get(variant)
        if measured is None:
            return NOVELTY[2]
        close = any(abs(s - cell[0]) <= 1 and abs(c - cell[1]) <= 1 for s, c in measured)
        return NOVELTY[0] if close else NOVELTY[1]


def seen(rows: Iterable[tuple[tuple[str, ...], float, int]]) -> MeasuredCells:
    """From (variant, size, cores) of measured rows."""
    cells: dict[tuple[str, ...], set[Cell]] = defaultdict(set)
    for variant, size, cores in rows:
        cells[variant].add(cell_of(size, cores))
    return MeasuredCells({variant: frozenset(found) for variant, found in cells.items()})


def _spread(parts: Iterable[tuple[OpCost, float]]) -> float:
    """Standard width of a sum of signed errors that belong together as their ops do."""
    own: dict[Hashable, float] = defaultdict(float)
    kernel: dict[Hashable, float] = defaultdict(float)
    family: dict[Hashable, float] = defaultdict(float)
    for op, value in parts:
        own[op.kernel, op.kernel_ns] += value
        kernel[op.kernel] += value
        family[op.kernel[:1]] += value
    levels = ((FAMILY_SHARE, family), (KERNEL_SHARE, kernel),
              (1 - FAMILY_SHARE - KERNEL_SHARE, own))  # fmt: skip
    return math.sqrt(sum(share * sum(v * v for v in sums.values()) for share, sums in levels))


def program_ns(ops: Sequence[OpCost]) -> tuple[float, float]:
    """The band of a program's device time: the sum of its ops with correlated errors."""
    device = [op for op in ops if op.bound != "host"]
    total = sum(op.kernel_ns + op.gap_ns for op in device)
    least = sum(op.least_ns + op.gap_ns for op in device)
    below = _spread((op, op.kernel_ns - op.low_ns) for op in device)
    above = _spread((op, op.high_ns - op.kernel_ns) for op in device)
    return max(total - below, min(least, total)), total + above


def ratio(ops: Sequence[OpCost], others: Sequence[OpCost]) -> tuple[float, float, float]:
    """Modelled device time of one setting of a program over another's, with its 80% band.

    Both come from one model, so what they share cancels: equal ops wholly, ops of one kernel or
    family as far as their errors were correlated on left-out sources.
    """
    first, second = ([op for op in part if op.bound != "host"] for part in (ops, others))
    time, other = (sum(op.kernel_ns + op.gap_ns for op in part) for part in (first, second))
    if not time or not other:
        return 1.0, 1.0, 1.0

    def errors(high: bool) -> Iterable[tuple[OpCost, float]]:
        for part, whole, sign in ((first, time, 1.0), (second, other, -1.0)):
            for op in part:
                edge = op.high_ns if high else op.low_ns
                width = abs(math.log(max(edge, 1e-9) / op.kernel_ns)) if op.kernel_ns else 0.0
                yield op, sign * width * op.kernel_ns / whole

    # Either setting may be the one that is off, so both sides of their bands count.
    width = max(_spread(errors(high=True)), _spread(errors(high=False)))
    value = time / other
    return value, value * math.exp(-width), value * math.exp(width)
