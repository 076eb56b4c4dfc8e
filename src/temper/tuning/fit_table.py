"""Does an embedding table or a weight fit the SRAM of a chip, and in which format?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from temper import chips
from temper.errors import UsageError
from temper.program import SRAM, TensorSpec
from temper.program.allocator import tensor_bank_bytes
from temper.program.tensor import BLOCK_FORMATS, TILE_BYTES, Layout


@dataclass(frozen=True)
class TableFit:
    """One format of an embedding table or weight, spread over the SRAM of the compute cores."""

    format: str
    size_bytes: int
    bytes_per_core: int
    usable_per_core: int
    fits: bool

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


def fit_table(rows: int, columns: int, chip: str) -> list[TableFit]:
    """Does a rows x columns table fit the chip's SRAM, and in which formats?"""
    if rows < 1 or columns < 1:
        raise UsageError("a table has at least one row and one column")
    board = chips.get(chip)
    found = []
    for fmt in ("float32", "bfloat16", "bfloat8_b", "bfloat4_b"):
        layout: Layout = "tile" if fmt in BLOCK_FORMATS else "row_major"
        spec = TensorSpec((rows, columns), fmt, layout, SRAM)
        each = tensor_bank_bytes(spec, board)
        usable = board.sram_usable_bytes
        found.append(TableFit(fmt, _size(rows, columns, fmt), each, usable, each <= usable))
    return found


def _size(rows: int, columns: int, fmt: str) -> int:
    return rows * columns * TILE_BYTES[fmt] // 1024
