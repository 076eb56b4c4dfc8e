"""A program's memory for people: SRAM and DRAM over its ops, and who holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from temper.chips import Chip, get
from temper.program.allocator import tensor_bank_bytes, trace_bank_bytes
from temper.program.memory_errors import explain_dram, explain_sram
from temper.program.program import Program
from temper.program.simulate import DoesNotFit, MemoryStep, MemoryTimeline, walk
from temper.program.tensor import describe_memory
from temper.program.trace_size import region_for, trace_bytes

POOLS = ("dram", "sram")


@dataclass(frozen=True, slots=True)
class Holding:
    """A value in device memory from op ``first`` to op ``last``, both included."""

    name: str
    pool: str  # dram or sram
    size_bytes: int  # of the chip in DRAM, of one core in SRAM
    first: int
    last: int
    module: str  # of the op that made it; a weight's own name


@dataclass(frozen=True, slots=True)
class HighWater:
    """The fullest moment of a pool, and the largest holders then."""

    pool: str
    size_bytes: int
    op: int
    holders: Sequence[Holding]


@dataclass(frozen=True)
class MemoryPlan:
    """What lies where at every op. SRAM in bytes of one core, DRAM in bytes of the chip."""

    program: Program
    chip: Chip
    timeline: MemoryTimeline
    trace_bytes: int
    trace_region_bytes: int

    @property
    def steps(self) -> tuple[MemoryStep, ...]:
        return self.timeline.steps

    @property
    def sram_high_water(self) -> int:
        return self.timeline.sram_high_water_bytes

    @property
    def sram_capacity(self) -> int:
        return self.chip.sram_usable_bytes

    @property
    def dram_capacity(self) -> int:
        return self.chip.dram_banks * self.chip.dram_bank_bytes

    @property
    def dram_weights(self) -> int:
        return sum(self.timeline.resident.values()) * self.chip.dram_banks

    @cached_property
    def dram_inputs(self) -> int:
        sizes = (tensor_bank_bytes(self.program.spec(n), self.chip) for n in self.program.inputs)
        return sum(sizes) * self.chip.dram_banks

    @property
    def dram_activations(self) -> int:
        """Most bytes of activations, inputs not counted."""
        peak = self.timeline.dram_high_water_bytes * self.chip.dram_banks
        return max(0, peak - self.dram_weights - self.dram_inputs)

    @property
    def dram_high_water(self) -> int:
        """Weights, inputs, activations at their peak, and the trace region."""
        peak = self.timeline.dram_high_water_bytes * self.chip.dram_banks
        return peak + self.trace_region_bytes

    def used(self, pool: str) -> list[int]:
        """Bytes held in a pool while each op runs: of the chip in DRAM, of one core in SRAM."""
        if pool == "sram":
            return [step.sram_bytes for step in self.steps]
        banks = self.chip.dram_banks
        return [step.dram_bytes * banks + self.trace_region_bytes for step in self.steps]

    def capacity(self, pool: str) -> int:
        """What the chip has of a pool, counted as ``used`` counts."""
        return self.sram_capacity if pool == "sram" else self.dram_capacity

    @cached_property
    def holdings(self) -> tuple[Holding, ...]:
        """Who holds what and when; circular buffers belong to their op alone."""
        end = max(0, len(self.program.ops) - 1)
        module = {
            name: op.source.module or op.kind
            for op in (*self.program.const_ops, *self.program.ops)
            for name in op.outputs
        }
        found = []
        for stay in self.timeline.stays:
            banks = self.chip.dram_banks if stay.buffer == "dram" else 1
            what = "input" if stay.name in self.program.inputs else module.get(stay.name, stay.name)
            what = self.program.weights.get(stay.name, what)
            first, last = max(0, stay.first), min(stay.last, end)
            found.append(
                Holding(stay.name, stay.buffer, stay.bank_bytes * banks, first, last, what)
            )
        if self.trace_region_bytes:
            name = "trace region"
            found.append(Holding(name, "dram", self.trace_region_bytes, 0, end, name))
        return tuple(found)

    def high_water(self, pool: str, *, top: int = 5) -> HighWater:
        """The fullest op of a pool. Its bytes are those of ``sram_`` and ``dram_high_water``."""
        used = self.used(pool)
        if not used:
            return HighWater(pool, 0, 0, ())
        at = max(range(len(used)), key=used.__getitem__)
        live = [h for h in self.holdings if h.pool == pool and h.first <= at <= h.last]
        circular = self.steps[at].circular_bytes if pool == "sram" else 0
        if circular:
            words = f"circular buffers of {self.steps[at].kind}"
            live.append(Holding(words, pool, circular, at, at, words))
        live.sort(key=lambda held: -held.size_bytes)
        return HighWater(pool, used[at], at, live[:top])

    def peak_steps(self, most: int = 5) -> list[MemoryStep]:
        """The ops that need most SRAM."""
        return sorted(self.steps, key=lambda step: -step.sram_bytes)[:most]

    def as_dict(self) -> dict[str, Any]:
        banks = self.chip.dram_banks
        return {
            "program": self.program.name,
            "chip": self.chip.name,
            "sram": {
                "capacity_bytes_per_core": self.sram_capacity,
                "high_water_bytes_per_core": self.sram_high_water,
            },
            "dram": {
                "capacity_bytes": self.dram_capacity,
                "high_water_bytes": self.dram_high_water,
                "weights_bytes": self.dram_weights,
                "inputs_bytes": self.dram_inputs,
                "activations_bytes": self.dram_activations,
                "trace_bytes_modelled": self.trace_bytes,
                "trace_region_bytes": self.trace_region_bytes,
            },
            "ops": [
                {
                    "index": step.index,
                    "kind": step.kind,
                    "output": step.output,
                    "circular_buffer_bytes": step.circular_bytes,
                    "sram_tensors": dict(step.sram),
                    "dram_bytes": step.dram_bytes * banks,
                }
                for step in self.steps
            ],
            "values": {
                name: {"where": describe_memory(spec.memory), "bytes": spec.size_bytes}
                for name, spec in self.program.values.items()
            },
        }


def plan(
    program: Program, chip: Chip | None = None, options: Mapping[str, Any] | None = None
) -> MemoryPlan:
    """Walk a placed program with the allocators; its own options say whether it is traced."""
    board = chip or get(program.chip)
    settings = program.options if options is None else options
    size = trace_bytes(program, board)
    region = 0
    if settings.get("enable_trace"):
        asked = settings.get("trace_region_size")
        region = region_for(size, board)
        if asked is not None:
            region = trace_bank_bytes(int(asked), board) * board.dram_banks
    try:
        timeline = walk(
            program,
            board,
            trace_region_bytes=region,
            l1_small_bytes=int(settings.get("l1_small_size") or 0),
        )
    except DoesNotFit as stop:
        if stop.error.what.endswith("DRAM."):
            raise explain_dram(stop, program, board, region) from None
        level = int(settings.get("optimization_level") or 0)
        raise explain_sram(stop, program, board, level) from None
    return MemoryPlan(program, board, timeline, size, region)
