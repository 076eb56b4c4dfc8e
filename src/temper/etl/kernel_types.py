"""What both twins of the preprocessing kernels take and give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Buffer = npt.NDArray[Any]

REASONS = (
    "good",
    "wrong number of columns",
    "not an integer",
    "not a number",
    "not hexadecimal",
    "out of range",
)
POLICIES = ("error", "skip", "fill")
# Rows that one block of text can hold at most (kernels/etl_text.hpp, kBlock).
MOST_ROWS_A_BLOCK = 256 << 10
GROW, COUNT, MAP = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Malformed:
    """One malformed row: its line in the batch, the column (-1: the row), why, and the text."""

    line: int
    column: int
    reason: int
    text: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """What one call parsed: rows written, lines read, where the next row starts."""

    rows: int
    lines: int
    next: int
    reasons: tuple[int, ...]
    malformed: tuple[Malformed, ...]
    fault: str  # "", "read" (input error) or "long" (a row beyond 16 MiB)


class Vocabulary(Protocol):
    """Distinct keys in order of first appearance."""

    full: bool

    def __len__(self) -> int: ...
    def add(self, keys: npt.NDArray[np.int64]) -> None: ...
    def keys(self, to: npt.NDArray[np.int64], start: int) -> None: ...
    def counts(self, to: npt.NDArray[np.int64]) -> None: ...


@dataclass(frozen=True, slots=True)
class Task:
    """One column for one vocabulary: grow, count or map ``values`` into ``out``."""

    vocabulary: Vocabulary
    mode: int
    values: Buffer
    out: Buffer
    base: int = 1  # the first identifier
    oov: int = 0
