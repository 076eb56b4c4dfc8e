"""Walk a placed program with the allocators: what lies where at every op, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

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
from temper.program.circular_buffers import circular_buffer_bytes, inside_bytes
from temper.program.conv_config import skips_halo
from temper.program.op import Op
from temper.program.program import Program
from temper.program.stored import dense_weights, reshape_maps
from temper.program.tensor import BLOCK_FORMATS, TensorSpec, ceil_div, is_view


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
        if op.kind in ("Reshape", "Halo"):
            before, after = program.spec(op.inputs[0]), program.spec(op.outputs[0])
            shown = (
                is_view(before, after) if op.kind == "Reshape" else skips_halo(op, before, after)
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
    dense = dense_weights(program)
    resident: dict[str, int] = {}
    for name in resident_values(program):
        resident[name] = tensor_bank_bytes(dense.get(name, program.spec(name)), chip)
        _take(program, name, -1, None, sram, dram, chip, dense)
    for name, size in reshape_maps(program, chip).items():
        _allocate(dram, f"map of {name}", size, -1, Op("Host", (), (name,)))
    for name in program.inputs:
        if name not in dram:
            _take(program, name, -1, None, sram, dram, chip)
    born = dict.fromkeys((*sram.used, *dram.used), -1)
    kept = frozenset(born)
    owner = storage(program)
    last = _last_use(program, owner)
    held = _keep_resharded(program, owner, last)
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
                _take(program, name, index, op, sram, dram, chip, dense)
                born[name] = index
        specs = program.input_specs(op), program.output_specs(op)
        scratch = inside_bytes(op, *specs, chip)
        if scratch:
            _allocate(sram, _inside(op), scratch, index, op)
        circular = circular_buffer_bytes(op, *specs, chip)
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
        if scratch:
            sram.free(_inside(op))
        touched = (*op.inputs, *op.outputs, *held.get(index, ()))
        for name in dict.fromkeys(owner.get(n, n) for n in touched):
            if last.get(name, index) <= index and name not in kept:
                release(name, index)
    at_end = sram.statistics(), dram.statistics()
    for name in born:
        release(name, len(program.ops))
    return MemoryTimeline(tuple(steps), *at_end, resident, tuple(stays))


def _inside(op: Op) -> str:
    return f"inside {op.kind} of {op.outputs[0]}"


def _last_use(program: Program, owner: Mapping[str, str]) -> dict[str, int]:
    """Index of the last op that reads each value or a view of it; outputs live to the end."""
    last: dict[str, int] = {}
    for name, index in program.last_use().items():
        held = owner.get(name, name)
        last[held] = max(last.get(held, index), index)
    return last


def resharded_inside(program: Program, op: Op, window: Op) -> bool:
    """Whether a window brings its operand to its cores by itself, by this move before its halo.

    It keeps the cores of an operand that is sharded for it, so shards of another number than the
    result's must be its own work. A pool takes shards as they are. For a bias with shared
    exponents the operand must come in shards: for an interleaved one ttnn lays the bias in rows.
    """
    before, after = program.spec(op.outputs[0]), program.spec(window.outputs[0])
    same = _row_shards(before) == _row_shards(after)
    if op.kind == "Reshard":
        return not same and window.kind != "Pool2d"
    formats = {program.spec(name).format for name in window.inputs[2:]}
    in_dram = program.spec(op.inputs[0]).memory.buffer != "sram"
    return not same or (in_dram and not formats & BLOCK_FORMATS)


def _row_shards(spec: TensorSpec) -> int:
    shard = spec.memory.shard
    return ceil_div(spec.physical_2d[0], shard[0]) if shard else 0


def _keep_resharded(
    program: Program, owner: Mapping[str, str], last: dict[str, int]
) -> dict[int, list[str]]:
    """An operand that a window reshards by itself stays until the window has run: by its index."""
    kept: dict[int, list[str]] = {}
    reader = {name: i for i, op in enumerate(program.ops) for name in op.inputs}
    for op in program.ops:
        if op.kind not in ("InterleavedToSharded", "Reshard") or op.outputs[0] not in reader:
            continue
        at = reader[op.outputs[0]]
        halo = window = program.ops[at]
        while window.kind in ("Halo", "Move") and window.outputs[0] in reader:
            at = reader[window.outputs[0]]
            window = program.ops[at]
        if halo.kind == "Halo" and resharded_inside(program, op, window):
            held = owner.get(op.inputs[0], op.inputs[0])
            last[held] = max(last.get(held, at), at)
            kept.setdefault(at, []).append(held)
    return kept


def _take(
    program: Program,
    name: str,
    index: int,
    op: Op | None,
    sram: BankAllocator,
    dram: BankAllocator,
    chip: Chip,
    dense: Mapping[str, TensorSpec] = MappingProxyType({}),
) -> None:
    spec = dense.get(name, program.spec(name))
    if spec.memory.buffer == "host":
        return
    allocator = dram if spec.memory.buffer == "dram" else sram
    _allocate(allocator, name, tensor_bank_bytes(spec, chip), index, op or Op("Host", (), (name,)))


def _allocate(allocator: BankAllocator, name: str, size: int, index: int, op: Op) -> None:
    try:
        allocator.allocate(name, size)
    except OutOfMemoryError as error:
        raise DoesNotFit(index, op, error, list(allocator.used)) from None


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
