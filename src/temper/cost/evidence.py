"""The evidence behind the constants: what was measured, how well unseen sources are predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from temper.chips import Chip
from temper.chips.guide import GUIDE_GBPS, GUIDE_OPERATOR_GBPS
from temper.cost.constants import constants

# The families that the cost model is judged by, one by one.
MAJOR = (
    "matmul", "conv2d", "binary", "unary", "softmax", "layernorm", "rmsnorm", "slice", "tilize",
    "untilize", "reshape", "transpose", "permute", "sharded_to_interleaved",
    "interleaved_to_sharded",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FamilyEvidence:
    """One family on one architecture.

    Errors in percent, on unseen sources (each row predicted without its source) and on seen ones
    (the rows of the fit itself). Balanced: every source weighs the same.
    """

    family: str
    rows: int
    sources: int
    median_ape: float | None
    p90_ape: float | None
    bias: float | None
    spearman: float | None
    in_band: float | None
    balanced_median: float | None
    balanced_p90: float | None
    seen_median: float | None
    seen_p90: float | None
    noise: float | None  # half-width of repeats, percent
    major: bool

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def table(arch: str) -> list[FamilyEvidence]:
    """All families with rows on an architecture, most rows first."""
    found = []
    for name, entry in constants().meta.get("evidence", {}).items():
        part = entry.get(arch)
        if not part:
            continue
        found.append(
            FamilyEvidence(
                name,
                part["rows"],
                part["sources"],
                part["median_ape"],
                part["p90_ape"],
                part["bias"],
                part["spearman"],
                part["in_band"],
                part["balanced"]["median_ape"],
                part["balanced"]["p90_ape"],
                part["in_fit"]["median_ape"],
                part["in_fit"]["p90_ape"],
                part["noise"],
                name in MAJOR,
            )
        )
    return sorted(found, key=lambda e: -e.rows)


def worst(rows: Sequence[FamilyEvidence], count: int = 5, fewest: int = 5) -> list[FamilyEvidence]:
    """The families predicted worst, leaving out those with hardly any rows."""
    judged = [e for e in rows if e.rows >= fewest and e.median_ape is not None]
    return sorted(judged, key=lambda e: -(e.median_ape or 0.0))[:count]


def summary() -> dict[str, Any]:
    """The fit as a whole: date, sources, rows, held-out and in-fit errors, noise floor."""
    keys = ("date", "rows", "sources", "held_out", "balanced", "in_band", "in_fit", "noise")
    meta = constants().meta
    return {key: meta.get(key) for key in keys}


def guide(chip: Chip) -> dict[str, float]:
    """What the tuning guide expects of a Grayskull board, GB/s; empty for the others."""
    by_workload = {
        kind: typical for (board, kind), (_, typical, _) in GUIDE_GBPS.items() if board == chip.name
    }
    return {**by_workload, **GUIDE_OPERATOR_GBPS.get(chip.name, {})}
