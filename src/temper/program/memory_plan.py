"""A program's memory for people: SRAM and DRAM over its ops, and who holds them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from temper.chips import Chip, get
from temper.program.allocator import tensor_bank_bytes
from temper.program.program import Program
from temper.program.simulate import Step, Timeline, walk
from temper.program.tensor import describe_memory
from temper.program.trace_size import region_for, trace_bytes


@dataclass(frozen=True)
class MemoryPlan:
    """What lies where at every op. SRAM in bytes of one core, DRAM in bytes of the chip."""

    program: Program
    chip: Chip
    timeline: Timeline
    trace_bytes: int
    trace_region_bytes: int

    @property
    def steps(self) -> tuple[Step, ...]:
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

    def peak_steps(self, most: int = 5) -> list[Step]:
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
    program: Program,
    chip: Chip | None = None,
    *,
    traced: bool = False,
    trace_region_bytes: int | None = None,
) -> MemoryPlan:
    """Walk a placed program with the allocators."""
    board = chip or get(program.chip)
    size = trace_bytes(program, board)
    region = region_for(size, board) if traced and trace_region_bytes is None else 0
    region = trace_region_bytes if trace_region_bytes is not None else region
    return MemoryPlan(program, board, walk(program, board, trace_region_bytes=region), size, region)
