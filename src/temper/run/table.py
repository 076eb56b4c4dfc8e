"""Ops in columns: what reports and comparisons work on, from a run or from a card's CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Text:
    """A text column: each row is an index into few distinct values."""

    codes: np.ndarray
    values: Sequence[str]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str:
        return str(self.values[self.codes[row]])

    def equals(self, value: str) -> np.ndarray:
        return self.where([v == value for v in self.values])

    def contains(self, part: str) -> np.ndarray:
        return self.where([part in v for v in self.values])

    def where(self, per_value: Sequence[bool]) -> np.ndarray:
        """Rows whose value has the property, given value by value."""
        if not len(per_value):
            return self.none()
        found: np.ndarray = np.asarray(per_value, dtype=bool)[self.codes]
        return found

    def numbers(self, per_value: Sequence[float]) -> np.ndarray:
        """A number for each row, given value by value."""
        if not len(per_value):
            return np.full(len(self), np.nan)
        found: np.ndarray = np.asarray(per_value, dtype=np.float64)[self.codes]
        return found

    def none(self) -> np.ndarray:
        return np.zeros(len(self), dtype=bool)

    def take(self, rows: np.ndarray) -> Text:
        return Text(self.codes[rows], self.values)

    @classmethod
    def of(cls, rows: Sequence[str]) -> Text:
        index: dict[str, int] = {}
        codes = np.fromiter(
            (index.setdefault(row, len(index)) for row in rows), dtype=np.int32, count=len(rows)
        )
        return cls(codes, list(index))

    @classmethod
    def constant(cls, value: str, count: int) -> Text:
        return cls(np.zeros(count, dtype=np.int32), [value])


def combined(parts: Sequence[Text]) -> tuple[np.ndarray, np.ndarray]:
    """Which distinct combination of text columns each row has, and the first row of each one."""
    rows = len(parts[0])
    codes = np.zeros(rows, dtype=np.int64)
    first = np.zeros(min(rows, 1), dtype=np.int64)
    for part in parts:
        # Folding one column in at a time keeps the numbers small.
        if len(part.values) > 1:
            keys = codes * len(part.values) + part.codes
            codes, first = _ranked(keys, len(first) * len(part.values))
    return codes.astype(np.int32), first


def _ranked(keys: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The rank of each key below ``size``, and the first row of each distinct one."""
    if size > 4 * len(keys) + 4096:
        _, first, ranks = np.unique(keys, return_index=True, return_inverse=True)
        return ranks.reshape(-1), first
    # Looked up instead of sorted; of rows with one key the last that is written is the first.
    place = np.full(size, -1, dtype=np.int64)
    place[keys[::-1]] = np.arange(len(keys) - 1, -1, -1)
    found = np.flatnonzero(place >= 0)
    first = place[found]
    place[found] = np.arange(len(found))
    return place[keys], first


# Number columns. Times are of one execution; NaN where unknown.
NUMBERS = (
    "count", "kernel_ns", "low_ns", "high_ns", "gap_ns", "host_ns", "cores", "available",
    "flops", "dram_bytes", "pm_ideal_ns", "pm_compute_ns", "pm_bandwidth_ns", "padding_waste",
    "call", "device",
)  # fmt: skip
# Text columns. ``type`` is device, host or signpost.
TEXTS = (
    "code", "type", "module", "location", "fidelity", "bound", "shape", "formats", "memory",
    "trace", "attributes", "const_eval",
)  # fmt: skip


@dataclass(frozen=True)
class OpTable:
    """Rows of ops. ``basis`` tells whose times they are: modelled, or measured on a card."""

    rows: int
    numbers: Mapping[str, np.ndarray]
    texts: Mapping[str, Text]
    basis: str
    arch: str = ""
    notes: tuple[str, ...] = field(default=())
    source: Any = field(default=None, repr=False)  # the file's columns; number "row" points there

    def number(self, name: str) -> np.ndarray:
        found = self.numbers.get(name)
        return np.full(self.rows, np.nan) if found is None else found

    def text(self, name: str) -> Text:
        found = self.texts.get(name)
        return Text.constant("", self.rows) if found is None else found

    @property
    def count(self) -> np.ndarray:
        found = self.numbers.get("count")
        return np.ones(self.rows) if found is None else found

    @property
    def is_device(self) -> np.ndarray:
        return self.text("type").equals("device")

    @property
    def is_host(self) -> np.ndarray:
        return self.text("type").equals("host")

    def total(self, name: str, rows: np.ndarray | None = None) -> float:
        """Sum over executions, unknown ones left out."""
        values = np.nan_to_num(self.number(name)) * self.count
        return float(values.sum() if rows is None else values[rows].sum())

    def select(self, rows: np.ndarray) -> OpTable:
        """The rows of a mask or an index."""
        index = np.flatnonzero(rows) if rows.dtype == bool else rows
        return OpTable(
            len(index),
            {name: column[index] for name, column in self.numbers.items()},
            {name: column.take(index) for name, column in self.texts.items()},
            self.basis,
            self.arch,
            self.notes,
            self.source,
        )
