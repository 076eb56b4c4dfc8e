"""The nearest measured neighbour of an op: a few hundred measured facts, each with its source."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from temper.cost.records import Physics

DATA = Path(__file__).parent / "data" / "neighbours.json"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One measured configuration: its kernel variant, size, cores, time and source."""

    variant: tuple[str, ...]
    log_size: float
    cores: int
    text: str


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
