"""What placement decided, value by value, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from temper.program.tensor import Memory


@dataclass(frozen=True, slots=True)
class ValuePlacement:
    """Where one value lies; ``obstacle`` says what keeps it out of SRAM, if anything does."""

    name: str
    memory: Memory
    bank_bytes: int
    reason: str
    obstacle: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "where": describe(self.memory),
            "bank_bytes": self.bank_bytes,
            "reason": self.reason,
            "obstacle": self.obstacle,
        }


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """Modelled device time with and without SRAM, and the decisions. All times are modelled."""

    level: int
    time_ns: float
    dram_time_ns: float
    values: tuple[ValuePlacement, ...]
    spills: tuple[str, ...] = ()
    moves: Mapping[str, int] | None = None
    fallback: str = ""

    @property
    def in_sram(self) -> int:
        return sum(value.memory.buffer == "sram" for value in self.values)

    def as_dict(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "modelled_time_ns": self.time_ns,
            "modelled_dram_time_ns": self.dram_time_ns,
            "in_sram": self.in_sram,
            "spills": list(self.spills),
            "moves": dict(self.moves or {}),
            "fallback": self.fallback,
            "values": [value.as_dict() for value in self.values],
        }


def describe(memory: Memory) -> str:
    """``DRAM``, ``SRAM``, or the sharding with its grid and shard."""
    place = {"dram": "DRAM", "sram": "SRAM", "host": "host"}[memory.buffer]
    if memory.grid is None or memory.shard is None:
        return place
    (x, y), (rows, columns) = memory.grid, memory.shard
    return f"{place} {memory.sharding}-sharded {x}x{y} of {rows}x{columns}"
