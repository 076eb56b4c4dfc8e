"""The bands of ops, from errors on sources that were left out of the fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from temper.cost.bands import NOVELTY

# Quantiles of the errors on left-out sources, by novelty. Farther from the rows few sources tell
# how far others may lie, so their quantiles are taken wider: with these about 80% of the rows of a
# source that had no part in fit and bands lie inside.
QUANTILES = dict(zip(NOVELTY, ((0.12, 0.88), (0.09, 0.91), (0.08, 0.92)), strict=True))
FLOOR = 0.03  # log; repeats alone spread this far
# Weight of errors from elsewhere, beside 1 for the same family, arch and novelty: they decide
# where a group has few sources of its own.
_OTHER_ARCH, _OTHER_NOVELTY, _OTHER_FAMILY = 0.3, 0.05, 0.1


@dataclass(frozen=True)
class Errors:
    """Errors on left-out sources: logarithms of measured over modelled, and whose they are.

    Those of extrapolated rows are divided by what their band is widened.
    """

    log: Any  # arrays of equal length
    family: Any
    arch: Any
    novelty: Any
    source: Any

    @classmethod
    def of(cls, rows: Sequence[tuple[float, str, str, str, str]]) -> Errors:
        columns = list(zip(*rows, strict=True))
        return cls(np.array(columns[0], dtype=float), *(np.array(c) for c in columns[1:]))

    def without(self, source: str) -> Errors:
        keep = self.source != source
        return Errors(*(getattr(self, name)[keep] for name in self.__dataclass_fields__))


def quantiles(errors: Errors, family: str, arch: str, novelty: str) -> tuple[float, float]:
    """Log band of one group: quantiles over sources that weigh the same, others lending theirs."""
    weight = np.where(errors.family == family, 1.0, _OTHER_FAMILY)
    weight *= np.where(errors.arch == arch, 1.0, _OTHER_ARCH)
    weight *= np.where(errors.novelty == novelty, 1.0, _OTHER_NOVELTY)
    # A source's rows share its weight, so that one with thousands does not outvote the others.
    _, index = np.unique(errors.source, return_inverse=True)
    total = np.bincount(index, weight)
    top = np.zeros(len(total))
    np.maximum.at(top, index, weight)
    weight = weight / np.maximum(total[index], 1e-12) * top[index]
    order = np.argsort(errors.log)
    cumulated = np.cumsum(weight[order])
    at = np.searchsorted(cumulated, np.array(QUANTILES[novelty]) * cumulated[-1])
    low, high = errors.log[order][np.minimum(at, len(order) - 1)]
    return float(min(low, -FLOOR)), float(max(high, FLOOR))


def _bands(errors: Errors, family: str, arch: str) -> list[tuple[float, float]]:
    """Log bands of one family and arch by novelty: what is farther is never better known."""
    bands = [quantiles(errors, family, arch, novelty) for novelty in NOVELTY]
    for i in (1, 2):
        low, high = bands[i]
        bands[i] = (min(low, bands[i - 1][0]), max(high, bands[i - 1][1]))
    return bands


def table(errors: Errors, groups: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Bands of each family and arch by novelty, as factors of the modelled time."""
    made: dict[str, Any] = {}
    for family, arch in groups:
        bands = zip(NOVELTY, _bands(errors, family, arch), strict=True)
        made.setdefault(family, {})[arch] = {
            novelty: [round(math.exp(low), 3), round(math.exp(high), 3)]
            for novelty, (low, high) in bands
        }
    return made


def coverage(errors: Errors) -> Any:
    """Whether each error lies in the band that the other sources give: an honest test of it."""
    inside = np.zeros(len(errors.log), dtype=bool)
    for source in np.unique(errors.source):
        index = np.flatnonzero(errors.source == source)
        others = errors.without(str(source))
        known: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for i in index:
            key = (str(errors.family[i]), str(errors.arch[i]))
            if key not in known:
                known[key] = _bands(others, *key)
            low, high = known[key][NOVELTY.index(str(errors.novelty[i]))]
            inside[i] = low <= errors.log[i] <= high
    return inside
