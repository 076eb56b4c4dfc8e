"""A memory allocator for one kind of bank, as ttnn's: lock-step banks, first fit, two directions.

All banks of a kind (DRAM channels, or the SRAM of the compute cores) are filled in lock-step: a
buffer takes the same addresses in every bank, so one free list stands for all of them. Tensors in
DRAM grow bottom-up, tensors in SRAM top-down; circular buffers grow bottom-up from the base of
SRAM and belong to one op only, so they are checked and never kept (FACTS 4).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Literal

from temper.chips import Chip
from temper.errors import OutOfMemoryError, UsageError
from temper.program.tensor import TILE, TILE_BYTES, TensorSpec, ceil_div, round_up

Direction = Literal["up", "down"]

# tt-mlir's runtime opens the device with this much for the small tables of conv, pool and halo.
DEFAULT_L1_SMALL_BYTES = 65_536
# A trace's share of a bank is a whole number of these (FACTS 5.4).
TRACE_PAGE_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of every bank, ``[start, end)``."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Statistics:
    """Bytes of one bank."""

    total_bytes: int
    allocated_bytes: int
    free_bytes: int
    largest_free_bytes: int
    lowest_address: int | None
    high_water_bytes: int

    @property
    def fragmentation(self) -> float:
        """Share of the free bytes that the largest hole cannot serve."""
        return 1 - self.largest_free_bytes / self.free_bytes if self.free_bytes else 0.0


class BankAllocator:
    """First-fit allocation of named buffers in banks that move in lock-step."""

    def __init__(
        self,
        name: str,
        banks: int,
        base: int,
        end: int,
        alignment: int,
        direction: Direction,
    ) -> None:
        if base % alignment or end < base:
            raise UsageError(f"{name}: bank base {base} must be aligned to {alignment}")
        self.name = name
        self.banks = banks
        self.base = base
        self.end = base + (end - base) // alignment * alignment
        self.alignment = alignment
        self.direction: Direction = direction
        self._free: list[Block] = [Block(self.base, self.end)]  # by address, never adjacent
        self._used: dict[str, Block] = {}
        self._high_water = 0
        self._allocated = 0

    def allocate(self, name: str, bank_bytes: int, direction: Direction | None = None) -> Block:
        """Take ``bank_bytes`` of every bank; an error carries the arithmetic when it cannot."""
        if name in self._used:
            raise UsageError(f"{self.name}: {name!r} is allocated already")
        size = round_up(max(bank_bytes, 1), self.alignment)
        upward = (direction or self.direction) == "up"
        order = range(len(self._free)) if upward else range(len(self._free) - 1, -1, -1)
        for index in order:
            hole = self._free[index]
            if hole.size < size:
                continue
            block = (
                Block(hole.start, hole.start + size) if upward else Block(hole.end - size, hole.end)
            )
            left = Block(hole.start, block.start), Block(block.end, hole.end)
            self._free[index : index + 1] = [part for part in left if part.size]
            self._used[name] = block
            self._allocated += size
            self._high_water = max(self._high_water, self._allocated)
            return block
        raise self._out_of_memory(name, size)

    def has_room(self, bank_bytes: int) -> bool:
        """Whether ``allocate`` of so many bytes would find a hole."""
        size = round_up(max(bank_bytes, 1), self.alignment)
        return any(hole.end - hole.start >= size for hole in self._free)

    def copy(self) -> BankAllocator:
        """Another allocator in the same state; planners try allocations on it."""
        made = copy(self)
        made._free = list(self._free)
        made._used = dict(self._used)
        return made

    def free(self, name: str) -> None:
        """Give a buffer back; neighbouring holes become one."""
        block = self._used.pop(name)
        self._allocated -= block.size
        index = next(
            (i for i, hole in enumerate(self._free) if hole.start > block.start), len(self._free)
        )
        start, end = block.start, block.end
        if index < len(self._free) and self._free[index].start == end:
            end = self._free.pop(index).end
        if index and self._free[index - 1].end == start:
            index -= 1
            start = self._free.pop(index).start
        self._free.insert(index, Block(start, end))

    def __contains__(self, name: str) -> bool:
        return name in self._used

    @property
    def used(self) -> dict[str, Block]:
        """The live buffers by name."""
        return dict(self._used)

    def size(self, name: str) -> int:
        """Bytes of every bank that a live buffer takes."""
        return self._used[name].size

    def address(self, name: str) -> int:
        """Where a live buffer begins, in every bank."""
        return self._used[name].start

    @property
    def allocated_bytes(self) -> int:
        """Bytes of every bank that are taken now."""
        return self._allocated

    @property
    def holes(self) -> tuple[Block, ...]:
        return tuple(self._free)

    @property
    def lowest_address(self) -> int:
        """Lowest occupied address; the end of the bank when it is empty."""
        return min((block.start for block in self._used.values()), default=self.end)

    def room_below(self) -> int:
        """Bytes under the lowest buffer: what circular buffers may take."""
        return self.lowest_address - self.base

    def statistics(self) -> Statistics:
        total = self.end - self.base
        return Statistics(
            total_bytes=total,
            allocated_bytes=self._allocated,
            free_bytes=total - self._allocated,
            largest_free_bytes=max((hole.size for hole in self._free), default=0),
            lowest_address=self.lowest_address if self._used else None,
            high_water_bytes=self._high_water,
        )

    def _out_of_memory(self, name: str, size: int) -> OutOfMemoryError:
        stats = self.statistics()
        biggest = sorted(self._used.items(), key=lambda item: -item[1].size)[:3]
        holders = ", ".join(f"{key} {count(block.size)} B" for key, block in biggest)
        return OutOfMemoryError(
            f"{name} does not fit in {self.name}.",
            needs=(
                f"{count(size)} B in each of {self.banks} banks; {count(stats.free_bytes)} B are "
                f"free, the largest hole has {count(stats.largest_free_bytes)} B of "
                f"{count(stats.total_bytes)} B"
            ),
            held=holders or None,
        )


def sram_allocator(
    chip: Chip, *, l1_small_bytes: int = DEFAULT_L1_SMALL_BYTES, share: float = 1.0
) -> BankAllocator:
    """SRAM of the compute cores: above the firmware's bytes, below the L1_SMALL region.

    A ``share`` below one leaves the rest free at the bottom, where circular buffers begin.
    """
    base = round_up(chip.sram_reserved_bytes, chip.sram_alignment)
    end = chip.sram_core_bytes - l1_small_bytes
    base = round_up(end - int((end - base) * share), chip.sram_alignment)
    return BankAllocator("SRAM", chip.compute_cores, base, end, chip.sram_alignment, "down")


def dram_allocator(chip: Chip, *, trace_region_bytes: int = 0) -> BankAllocator:
    """DRAM banks without the share of the trace region, which lies at their end."""
    end = chip.dram_bank_bytes - trace_bank_bytes(trace_region_bytes, chip)
    return BankAllocator("DRAM", chip.dram_banks, 0, end, chip.dram_alignment, "up")


def trace_bank_bytes(trace_region_bytes: int, chip: Chip) -> int:
    """One bank's share of a trace region given in total bytes, rounded up to whole pages."""
    return round_up(ceil_div(trace_region_bytes, chip.dram_banks), TRACE_PAGE_BYTES)


def tensor_bank_bytes(spec: TensorSpec, chip: Chip) -> int:
    """What a tensor takes of every bank of its memory; nothing for a tensor on the host."""
    memory = spec.memory
    if memory.buffer == "host":
        return 0
    dram = memory.buffer == "dram"
    alignment = chip.dram_alignment if dram else chip.sram_alignment
    if memory.shard is not None:
        return round_up(_shard_bytes(spec, memory.shard, alignment), alignment)
    banks = chip.dram_banks if dram else chip.compute_cores
    return ceil_div(spec.pages, banks) * round_up(spec.page_bytes, alignment)


def _shard_bytes(spec: TensorSpec, shard: tuple[int, int], alignment: int) -> int:
    if spec.layout == "tile":
        return ceil_div(shard[0], TILE) * ceil_div(shard[1], TILE) * TILE_BYTES[spec.format]
    return shard[0] * round_up(int(shard[1] * spec.element_bytes), alignment)


def count(value: int) -> str:
    """Bytes in groups of three digits, as the messages print them: 1 393 312."""
    return f"{value:,}".replace(",", " ")
