"""The nearest measured neighbour of an op: a few hundred measured facts, each with its source."""

from __future__ import annotations

import datetime
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temper.cost.records import Physics
from temper.cost.work import SHORT

if TYPE_CHECKING:
    from temper.cost.calibrate import FittedFamily
    from temper.cost.rows import Row

DATA = Path(__file__).parent / "data" / "neighbours.json"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One measured configuration: its kernel variant, size, cores, time and source."""

    variant: tuple[str, ...]
    log_size: float
    cores: int
    text: str


# How many facts the index holds in all; more would say little more about an op.
_ENTRIES = 420


def document(fitted: Sequence[FittedFamily]) -> dict[str, Any]:
    """A spread of measured configurations over families, kernels and sizes, as JSON."""
    groups: dict[tuple[str, str], list[tuple[Row, Physics]]] = defaultdict(list)
    for family in fitted:
        for row, terms in zip(family.rows, family.terms, strict=True):
            groups[row.chip.arch, family.name].append((row, terms))
    scale = sum(math.sqrt(len(g)) for g in groups.values())
    rows: list[list[Any]] = []
    for (arch, name), group in sorted(groups.items()):
        count = min(len(group), max(2, round(_ENTRIES * math.sqrt(len(group)) / scale)))
        group.sort(key=lambda pair: (pair[1].variant, pair[1].size, pair[0].number))
        for i in range(count):
            row, terms = group[i * len(group) // count]
            rows.append([
                arch, name, list(terms.variant), float(f"{terms.size:.4g}"), terms.cores,
                float(f"{row.kernel_ns / 1000:.4g}"), describe(row), row.source,
            ])  # fmt: skip
    return {"date": datetime.date.today().isoformat(), "rows": rows}


def describe(row: Row) -> str:
    """Board, op, shapes, format and fidelity in one short line."""
    shapes = [trimmed(spec.shape) for spec in row.inputs[:2]] or [trimmed(row.outputs[0].shape)]
    fidelity = str(row.op.attrs.get("fidelity") or "") if row.family in _MATRIX else ""
    words = [row.chip.name, row.op.kind, ",".join(shapes), SHORT[row.outputs[0].format], fidelity]
    return " ".join(word for word in words if word)


_MATRIX = ("matmul", "conv2d", "sdpa", "sparse_matmul")


def trimmed(shape: Sequence[int]) -> str:
    """The shape without leading ones."""
    start = next((i for i, d in enumerate(shape) if d != 1), max(0, len(shape) - 1))
    return "x".join(str(d) for d in shape[start:])


@lru_cache(maxsize=1)
def _index() -> dict[tuple[str, str], list[Neighbour]]:
    index: dict[tuple[str, str], list[Neighbour]] = defaultdict(list)
    if DATA.exists():
        for arch, family, variant, size, cores, micros, text, source in json.loads(
            DATA.read_text()
        )["rows"]:
            shown = f"{text}: {micros:g} µs measured ({source})"
            entry = Neighbour(tuple(variant), math.log(max(size, 1.0)), cores, shown)
            index[arch, family].append(entry)
    return dict(index)


def nearest(arch: str, terms: Physics) -> str:
    """Text of the measured configuration that is most like this one; empty if there is none."""
    return _nearest(arch, terms.family, terms.variant, round(terms.size), terms.cores)


@lru_cache(maxsize=65536)
def _nearest(arch: str, family: str, variant: tuple[str, ...], size: int, cores: int) -> str:
    entries = _index().get((arch, family))
    if not entries:
        return ""
    log_size = math.log(max(size, 1))

    def distance(entry: Neighbour) -> float:
        differs = sum(a != b for a, b in zip(variant, entry.variant, strict=False))
        spread = abs(math.log(max(cores, 1) / max(entry.cores, 1)))
        return abs(log_size - entry.log_size) + 0.5 * spread + differs

    return min(entries, key=distance).text
