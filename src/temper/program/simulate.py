"""Walk a placed program with the allocators: what lies where at every op, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from temper.chips import Chip
from temper.errors import OutOfMemoryError
from temper.program.allocator import (
    BankAllocator,
    Statistics,
    count,
    dram_allocator,
    sram_allocator,
    tensor_bank_bytes,
)
from temper.program.circular_buffers import circular_buffer_bytes
from temper.program.op import Op
from temper.program.program import Program


@dataclass(frozen=True, slots=True)
class Step:
    """Memory while one op runs; SRAM in bytes of one core, DRAM in bytes of one bank."""

    index: int
    kind: str
    output: str
    circular_bytes: int
    sram: Mapping[str, int]
    sram_lowest: int
    dram_bytes: int

    @property
    def sram_tensor_bytes(self) -> int:
        return sum(self.sram.values())

    @property
    def sram_bytes(self) -> int:
        return self.circular_bytes + self.sram_tensor_bytes


@dataclass(frozen=True, slots=True)
class Timeline:
    """The whole program's memory, op by op."""

    steps: tuple[Step, ...]
    sram: Statistics
    dram: Statistics
    resident: Mapping[str, int] = field(default_factory=dict)  # weights: DRAM bytes of a bank

    @property
    def sram_high_water_bytes(self) -> int:
        return max((step.sram_bytes for step in self.steps), default=0)

    @property
    def dram_high_water_bytes(self) -> int:
        return max((step.dram_bytes for step in self.steps), default=sum(self.resident.values()))


class DoesNotFit(Exception):
    """An op of the program does not fit; ``holders`` are the SRAM tensors alive then."""

    def __init__(self, index: int, op: Op, error: OutOfMemoryError, holders: list[str]) -> None:
        super().__init__(str(error))
        self.index, self.op, self.error, self.holders = index, op, error, holders


def resident_values(program: Program) -> list[str]:
    """State, and weights and const-eval results that ops read: they stay in DRAM for good."""
    made = {name for op in program.const_ops for name in op.outputs}
    fixed = made | set(program.weights)
    read = (n for op in program.ops for n in op.inputs if n in fixed)
    return list(dict.fromkeys((*program.state, *read)))


def walk(
    program: Program, chip: Chip, *, trace_region_bytes: int = 0, l1_small_bytes: int = 0
) -> Timeline:
    """Allocate and free every tensor in schedule order; raises DoesNotFit."""
    sram = sram_allocator(chip, l1_small_bytes=l1_small_bytes)
    dram = dram_allocator(chip, trace_region_bytes=trace_region_bytes)
    resident: dict[str, int] = {}
    for name in resident_values(program):
        _take(program, name, -1, None, sram, dram, chip)
        resident[name] = tensor_bank_bytes(program.spec(name), chip)
    for name in program.inputs:
        if name not in dram:
            _take(program, name, -1, None, sram, dram, chip)
    last = program.last_use()
    steps: list[Step] = []
    for index, op in enumerate(program.ops):
        for name in () if op.info.in_place else op.outputs:
            _take(program, name, index, op, sram, dram, chip)
        circular = circular_buffer_bytes(
            op, program.input_specs(op), program.output_specs(op), chip
        )
        if circular > sram.room_below():
            raise DoesNotFit(index, op, _clash(op, circular, sram, chip), list(sram.used))
        steps.append(
            Step(
                index=index,
                kind=op.kind,
                output=op.outputs[0] if op.outputs else "",
                circular_bytes=circular,
                sram={name: block.size for name, block in sram.used.items()},
                sram_lowest=sram.lowest_address,
                dram_bytes=dram.statistics().allocated_bytes,
            )
        )
        for name in dict.fromkeys((*op.inputs, *op.outputs)):
            if last.get(name, index) > index or name in resident or name in program.inputs:
                continue
            for allocator in (sram, dram):
                if name in allocator:
                    allocator.free(name)
        if op.kind == "Halo" and op.outputs[0] in sram:
            # ttnn moves the halo up into the bytes of the input that was just freed.
            sram.free(op.outputs[0])
            _take(program, op.outputs[0], index, op, sram, dram, chip)
    return Timeline(tuple(steps), sram.statistics(), dram.statistics(), resident)


def _take(
    program: Program,
    name: str,
    index: int,
    op: Op | None,
    sram: BankAllocator,
    dram: BankAllocator,
    chip: Chip,
) -> None:
    spec = program.spec(name)
    if spec.memory.buffer == "host":
        return
    allocator = dram if spec.memory.buffer == "dram" else sram
    try:
        allocator.allocate(name, tensor_bank_bytes(spec, chip))
    except OutOfMemoryError as error:
        raise DoesNotFit(
            index, op or Op("Host", (), (name,)), error, list(allocator.used)
        ) from None


def _clash(op: Op, circular: int, sram: BankAllocator, chip: Chip) -> OutOfMemoryError:
    tensors = sram.statistics().allocated_bytes
    name = op.source.module or (op.outputs[0] if op.outputs else op.kind)
    return OutOfMemoryError(
        f"{name} ({op.kind}) does not fit in SRAM.",
        needs=(
            f"{count(circular)} B circular buffers + {count(tensors)} B tensors a core; "
            f"a core of {chip.name} has {count(chip.sram_usable_bytes)} B"
        ),
    )
