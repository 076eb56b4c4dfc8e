"""Tensor specs: shape, format, layout and memory of one value of a device program."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from temper.errors import UsageError
from temper.formats.names import BLOCK_FORMATS as BLOCK_FORMATS
from temper.formats.names import INTEGER_FORMATS as INTEGER_FORMATS
from temper.formats.sizes import TILE as TILE
from temper.formats.sizes import TILE_BYTES as TILE_BYTES

Buffer = Literal["dram", "sram", "host"]
Sharding = Literal["interleaved", "height", "width", "block"]
Layout = Literal["tile", "row_major"]


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a tensor lies. Shards are (rows, columns) in elements, the grid is (x, y) cores."""

    buffer: Buffer = "dram"
    sharding: Sharding = "interleaved"
    grid: tuple[int, int] | None = None
    shard: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        sharded = self.sharding != "interleaved"
        if sharded and (self.grid is None or self.shard is None):
            raise UsageError(f"{self.sharding} sharding needs a core grid and a shard shape")
        if not sharded and (self.grid is not None or self.shard is not None):
            raise UsageError("interleaved memory has neither core grid nor shard shape")

    @property
    def sharded(self) -> bool:
        return self.sharding != "interleaved"

    @property
    def cores(self) -> int:
        """Cores that hold a shard; 0 when interleaved."""
        return self.grid[0] * self.grid[1] if self.grid else 0


DRAM = Memory("dram")
SRAM = Memory("sram")
HOST = Memory("host")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor as the chip sees it; the logical shape may have any rank."""

    shape: tuple[int, ...]
    format: str = "bfloat16"
    layout: Layout = "tile"
    memory: Memory = DRAM

    def __post_init__(self) -> None:
        if self.format not in TILE_BYTES:
            raise UsageError(f"unknown tensor format {self.format!r}", allowed=sorted(TILE_BYTES))
        if self.format in BLOCK_FORMATS and self.layout == "row_major":
            raise UsageError(
                f"{self.format} cannot be row-major",
                needs="a shared exponent for 16 values of a tile row exists only in tiles",
                try_=["layout='tile'", "bfloat16"],
            )

    @property
    def matrix(self) -> tuple[int, int, int]:
        """(batch, rows, columns) of the logical shape; rank 0 and 1 are one row."""
        if len(self.shape) == 0:
            return 1, 1, 1
        if len(self.shape) == 1:
            return 1, 1, self.shape[0]
        return math.prod(self.shape[:-2]), self.shape[-2], self.shape[-1]

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """The shape with its last two dimensions filled up to whole tiles (tile layout only)."""
        if self.layout == "row_major":
            return self.shape
        shape = self.shape if len(self.shape) >= 2 else (1,) * (2 - len(self.shape)) + self.shape
        return (*shape[:-2], round_up(shape[-2], TILE), round_up(shape[-1], TILE))

    @property
    def tiles(self) -> int:
        """Number of 32x32 tiles of the padded shape."""
        batch, rows, columns = self.matrix
        return batch * ceil_div(rows, TILE) * ceil_div(columns, TILE)

    @property
    def physical_2d(self) -> tuple[int, int]:
        """Height and width when all outer dimensions are collapsed, as sharding sees it."""
        padded = self.padded_shape
        width = padded[-1] if padded else 1
        return (math.prod(padded) // width if width else 0), width

    @property
    def element_bytes(self) -> float:
        """Bytes of one element, shared exponents included."""
        return TILE_BYTES[self.format] / (TILE * TILE)

    @property
    def page_bytes(self) -> int:
        """One tile, or one row of the last dimension; not yet aligned."""
        if self.layout == "tile":
            return TILE_BYTES[self.format]
        return int((self.shape[-1] if self.shape else 1) * self.element_bytes)

    @property
    def pages(self) -> int:
        if self.layout == "tile":
            return self.tiles
        return math.prod(self.shape[:-1]) if self.shape else 1

    @property
    def size_bytes(self) -> int:
        """All pages, without alignment or padding to banks."""
        return self.pages * self.page_bytes

    def with_memory(self, memory: Memory) -> TensorSpec:
        return replace(self, memory=memory)


def turned_by_transpose(rank: int, first: int, second: int) -> bool:
    """Whether ttnn's transpose has a kernel for two axes of tiles: neighbours among the last four.

    Others change places by a permute.
    """
    return rank <= 4 and abs(first % rank - second % rank) == 1


def is_view(before: TensorSpec, after: TensorSpec) -> bool:
    """Whether a reshape between the two moves nothing: the same pages in the same order."""
    same = (before.format, before.layout, before.memory) == (
        after.format,
        after.layout,
        after.memory,
    )
    if not same or (before.memory.sharded and before.physical_2d != after.physical_2d):
        return False
    (batch, rows, columns), (batch2, rows2, columns2) = before.matrix, after.matrix
    if columns != columns2 or batch * rows != batch2 * rows2:
        return False
    whole = before.layout == "row_major" or (rows % TILE == 0 and rows2 % TILE == 0)
    return whole or rows == rows2


def ceil_div(a: int, b: int) -> int:
    """Quotient of whole numbers, rounded up."""
    return -(-a // b)


def divisors(value: int) -> list[int]:
    """All divisors of a positive number, smallest first."""
    low = [d for d in range(1, math.isqrt(value) + 1) if value % d == 0]
    return [*low, *(value // d for d in reversed(low) if d * d != value)]


def round_up(a: int, multiple: int) -> int:
    """The next multiple."""
    return ceil_div(a, multiple) * multiple


def describe_memory(memory: Memory) -> str:
    """``DRAM``, ``SRAM``, or the sharding with its grid and shard."""
    place = {"dram": "DRAM", "sram": "SRAM", "host": "host"}[memory.buffer]
    if memory.grid is None or memory.shard is None:
        return place
    (x, y), (rows, columns) = memory.grid, memory.shard
    return f"{place} {memory.sharding}-sharded {x}x{y} of {rows}x{columns}"
