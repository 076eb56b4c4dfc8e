"""Judging the constants in force on any file of measured rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from temper.cost import rows as row_files
from temper.cost.calibrate import noise, spearman
from temper.cost.constants import constants
from temper.cost.model import estimate_op
from temper.cost.rows import Rejected, Row


@dataclass(frozen=True, slots=True)
class Score:
    """How predictions met measurements; errors in percent, the band as a share of 1."""

    rows: int
    predicted: int
    median_ape: float | None
    p90_ape: float | None
    bias: float | None
    spearman: float | None
    in_band: float | None

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True)
class Evaluation:
    """Scores over all rows and per family and arch, and what could not be predicted."""

    overall: Score
    seen: Score  # rows of sources that the constants were fitted to
    unseen: Score
    families: dict[str, Score]
    unpredicted: Sequence[Rejected]
    noise: dict[str, float]
    fitted_sources: Sequence[str]  # sources of the file that the constants were fitted to

    def as_dict(self) -> dict[str, Any]:
        return {
            "overall": self.overall.as_dict(),
            "seen": self.seen.as_dict(),
            "unseen": self.unseen.as_dict(),
            "families": {name: score.as_dict() for name, score in self.families.items()},
            "unpredicted": [
                {"line": r.number, "op": r.op, "reason": r.reason} for r in self.unpredicted
            ],
            "noise": self.noise,
            "fitted_sources": list(self.fitted_sources),
        }


@dataclass(frozen=True, slots=True)
class _Point:
    measured: float
    predicted: float
    inside: bool


def evaluate(path: Path) -> Evaluation:
    """Predict every row of a file as if it were an op of a program."""
    usable, rejected = row_files.read(path)
    return evaluate_rows(usable, rejected)


def evaluate_rows(usable: Sequence[Row], rejected: Sequence[Rejected] = ()) -> Evaluation:
    """How well the model foretells measured rows, by family."""
    groups: dict[str, list[_Point]] = defaultdict(list)
    fitted = set(constants().meta.get("sources", ()))
    parts: dict[bool, list[_Point]] = {True: [], False: []}
    for row in usable:
        cost = estimate_op(row.op, row.inputs, row.outputs, row.chip, context=row.context)
        inside = cost.low_ns <= row.kernel_ns <= cost.high_ns
        key = f"{row.family}/{row.chip.arch}"
        point = _Point(row.kernel_ns, cost.kernel_ns, inside)
        groups[key].append(point)
        parts[row.source in fitted].append(point)
    everything = [point for points in groups.values() for point in points]
    return Evaluation(
        score(everything, len(usable) + len(rejected)),
        score(parts[True], len(parts[True])),
        score(parts[False], len(parts[False])),
        {key: score(groups[key], len(groups[key])) for key in sorted(groups)},
        list(rejected),
        noise(usable),
        sorted({row.source for row in usable} & fitted),
    )


def score(points: Sequence[_Point], rows: int) -> Score:
    """Errors of modelled against measured times in few numbers."""
    if not points:
        return Score(rows, 0, None, None, None, None, None)
    measured = np.array([p.measured for p in points])
    predicted = np.array([p.predicted for p in points])
    ratio = predicted / measured - 1
    ape = np.abs(ratio) * 100
    return Score(
        rows,
        len(points),
        round(float(np.median(ape)), 2),
        round(float(np.quantile(ape, 0.9)), 2),
        round(float(np.median(ratio)) * 100, 2),
        spearman(measured, predicted),
        round(float(np.mean([p.inside for p in points])), 4),
    )
