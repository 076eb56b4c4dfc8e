"""What placement decided, value by value, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from temper.program.tensor import Memory, describe_memory


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
            "where": describe_memory(self.memory),
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
