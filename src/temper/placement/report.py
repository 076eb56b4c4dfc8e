"""What placement decided, value by value, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from temper.program.tensor import Memory, describe_memory


@dataclass(frozen=True, slots=True)
class ValuePlacement:
    """Where one value lies; ``obstacle`` says what keeps it out of SRAM, if anything does.

    ``short_ns`` is the modelled time that too little room for it costs, a spill included.
    """

    name: str
    memory: Memory
    bank_bytes: int
    reason: str
    obstacle: str = ""
    short_ns: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "where": describe_memory(self.memory),
            "bank_bytes": self.bank_bytes,
            "reason": self.reason,
            "obstacle": self.obstacle,
            "short_ns": self.short_ns,
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
    parts: int = 1  # of the batch, in which the first ops run

    @property
    def short(self) -> tuple[ValuePlacement, ...]:
        """Values that SRAM has no room for where it would pay, the costliest first."""
        found = [value for value in self.values if value.short_ns > 0]
        return tuple(sorted(found, key=lambda value: -value.short_ns))

    @property
    def headline(self) -> str:
        """What too little SRAM costs, naming the tensor that costs most; empty if nothing."""
        told = []
        if self.fallback:
            told.append(self.fallback)
        if self.parts > 1:
            told.append(f"runs in {self.parts} parts of the batch, which fit in SRAM")
        if self.short:
            worst = self.short[0]
            rest = len(self.short) - 1
            more = f" and {rest} more" if rest else ""
            told.append(
                f"{worst.name}{more} not kept in SRAM for want of room: "
                f"{worst.short_ns / 1000:,.0f} us of {self.time_ns / 1000:,.0f} us for "
                f"{worst.name} (modelled)"
            )
        return "; ".join(told)

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
            "parts": self.parts,
            "headline": self.headline,
            "values": [value.as_dict() for value in self.values],
        }
