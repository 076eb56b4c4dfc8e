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
from temper.program.tensor import is_view


@dataclass(frozen=True, slots=True)
class MemoryStep:
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
class Stay:
    """Bytes of every bank that a value holds from op ``first`` to op ``last``, both included.

    ``first`` is -1 for what lies there before the first op; ``last`` is the number of ops for what
    stays. A view holds nothing: it lies in the bytes of the value that it shows.
    """

    name: str
    buffer: str
    bank_bytes: int
    first: int
    last: int
    address: int = 0  # in every bank


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """The whole program's memory, op by op."""

    steps: tuple[MemoryStep, ...]
    sram: Statistics
    dram: Statistics
    resident: Mapping[str, int] = field(default_factory=dict)  # weights: DRAM bytes of a bank
    stays: tuple[Stay, ...] = ()

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


def storage(program: Program) -> dict[str, str]:
    """The value in whose bytes each one lies: its own, a viewed one, or state changed in place."""
    owner: dict[str, str] = {}
    for op in program.ops:
        shown = op.info.in_place or op.kind == "FillPad"
        shown = shown or (
            op.kind == "Reshape"
            and is_view(program.spec(op.inputs[0]), program.spec(op.outputs[0]))
        )
        into = op.attrs.get("into")
        held = op.inputs[into or 0] if op.inputs else ""
        for name in op.outputs:
            owner[name] = owner.get(held, held) if shown or into is not None else name
    return owner


def walk(
    program: Program, chip: Chip, *, trace_region_bytes: int = 0, l1_small_bytes: int | None = None
) -> MemoryTimeline:
    """Allocate and free every tensor in schedule order; raises DoesNotFit.

    ``l1_small_bytes`` is what the program's options say where it is not given.
    """
    small = program.options.get("l1_small_size") if l1_small_bytes is None else l1_small_bytes
    sram = sram_allocator(chip, l1_small_bytes=int(small or 0))
    dram = dram_allocator(chip, trace_region_bytes=trace_region_bytes)
    resident: dict[str, int] = {}
    for name in resident_values(program):
        _take(program, name, -1, None, sram, dram, chip)
        resident[name] = tensor_bank_bytes(program.spec(name), chip)
    for name in program.inputs:
        if name not in dram:
            _take(program, name, -1, None, sram, dram, chip)
    born = dict.fromkeys((*sram.used, *dram.used), -1)
    kept = frozenset(born)
    owner = storage(program)
    last = _last_use(program, owner)
    steps: list[MemoryStep] = []
    stays: list[Stay] = []

    def release(name: str, index: int) -> None:
        for allocator, buffer in ((sram, "sram"), (dram, "dram")):
            if name in allocator:
                size, address = allocator.size(name), allocator.address(name)
                stays.append(Stay(name, buffer, size, born[name], index, address))
                allocator.free(name)

    for index, op in enumerate(program.ops):
        if op.kind == "Move":  # ttnn lets the old place go before it takes the new one
            release(op.inputs[0], index)
        for name in op.outputs:
            if owner[name] == name:
                _take(program, name, index, op, sram, dram, chip)
                born[name] = index
        circular = circular_buffer_bytes(
            op, program.input_specs(op), program.output_specs(op), chip
        )
        if circular > sram.room_below():
            raise DoesNotFit(index, op, _clash(op, circular, sram, chip), list(sram.used))
        steps.append(
            MemoryStep(
                index=index,
                kind=op.kind,
                output=op.outputs[0] if op.outputs else "",
                circular_bytes=circular,
                sram={name: block.size for name, block in sram.used.items()},
                sram_lowest=sram.lowest_address,
                dram_bytes=dram.allocated_bytes,
            )
        )
        for name in dict.fromkeys(owner.get(n, n) for n in (*op.inputs, *op.outputs)):
            if last.get(name, index) <= index and name not in kept:
                release(name, index)
    at_end = sram.statistics(), dram.statistics()
    for name in born:
        release(name, len(program.ops))
    return MemoryTimeline(tuple(steps), *at_end, resident, tuple(stays))


def _last_use(program: Program, owner: Mapping[str, str]) -> dict[str, int]:
    """Index of the last op that reads each value or a view of it; outputs live to the end."""
    last: dict[str, int] = {}
    for name, index in program.last_use().items():
        held = owner.get(name, name)
        last[held] = max(last.get(held, index), index)
    return last


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
