"""Rows in any order: what index maps cannot say, such as a cyclic shift cut into windows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from temper.formats.arrays import Array
from temper.program.index_map import IndexMap

# More rows than this are not written out one by one.
MOST_ROWS = 1 << 20


@dataclass(frozen=True, eq=False)
class RowTable:
    """For every row of the result the row of the source that it is.

    It takes the same views as an index map, as long as they keep rows whole.
    """

    source: tuple[int, ...]
    rows: Array  # int64, the result's shape without its last axis

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return self.source, self.rows.shape, self.rows.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowTable) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def width(self) -> int:
        return self.source[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the result."""
        return (*self.rows.shape, self.width)

    @cached_property
    def is_reshape(self) -> bool:
        count = math.prod(self.source[:-1])
        same = self.rows.size == count and (self.rows.ravel() == np.arange(count)).all()
        return bool(same)

    @property
    def is_identity(self) -> bool:
        return self.is_reshape and self.shape == self.source

    @cached_property
    def is_bijection(self) -> bool:
        count = math.prod(self.source[:-1])
        return bool(self.rows.size == count and len(np.unique(self.rows)) == count)

    def _with(self, rows: Array) -> RowTable:
        return RowTable(self.source, np.ascontiguousarray(rows))

    def _lead(self, dim: int) -> bool:
        return bool(dim % (self.rows.ndim + 1) < self.rows.ndim)

    def reshape(self, shape: Sequence[int]) -> RowTable | None:
        if not shape or shape[-1] != self.width:
            return None
        return self._with(self.rows.reshape(tuple(shape[:-1])))

    def permute(self, dims: Sequence[int]) -> RowTable | None:
        rank = self.rows.ndim + 1
        order = [d % rank for d in dims]
        return self._with(self.rows.transpose(order[:-1])) if order[-1] == rank - 1 else None

    def slice(self, dim: int, start: int, count: int, step: int = 1) -> RowTable | None:
        if not self._lead(dim):
            return None
        return self.take(dim, np.arange(start, start + count * step, step))

    def select(self, dim: int, index: int) -> RowTable | None:
        if not self._lead(dim) or self.rows.ndim < 2:
            return None
        return self._with(self.rows.take(index, axis=dim))

    def flip(self, dims: Iterable[int]) -> RowTable | None:
        turned = [d % (self.rows.ndim + 1) for d in dims]
        if not all(map(self._lead, turned)):
            return None
        return self._with(np.flip(self.rows, tuple(turned)))

    def repeat(self, repeats: Sequence[int]) -> RowTable | None:
        return self._with(np.tile(self.rows, repeats[:-1])) if repeats[-1] == 1 else None

    def expand(self, shape: Sequence[int]) -> RowTable | None:
        sizes = [
            have if wanted == -1 else wanted
            for wanted, have in zip(shape[-self.rows.ndim - 1 :], self.shape, strict=True)
        ]
        if sizes[-1] != self.width:
            return None
        return self._with(np.broadcast_to(self.rows, (*shape[: -len(sizes)], *sizes[:-1])))

    def take(self, dim: int, places: Array) -> RowTable | None:
        """Some places of one axis, in any order."""
        return self._with(self.rows.take(places, axis=dim)) if self._lead(dim) else None

    def filled(self, multiple: int) -> RowTable:
        """The last axis of rows made up to a multiple by rows that nobody reads."""
        short = -self.rows.shape[-1] % multiple
        edges = [(0, 0)] * (self.rows.ndim - 1) + [(0, short)]
        return RowTable(self.source, np.pad(self.rows, edges, mode="edge")) if short else self

    def of_rows(self, width: int) -> RowTable:
        """The same rows with another width."""
        return RowTable((*self.source[:-1], width), self.rows)


Chart = IndexMap | RowTable


def as_rows(chart: Chart) -> RowTable | None:
    """Any map as a table of rows, where rows of the source move whole and are not too many."""
    if isinstance(chart, RowTable):
        return chart
    single = chart.of_rows(1)
    if single is None or math.prod(single.shape) > MOST_ROWS:
        return None
    return RowTable(chart.source, single.indices()[..., 0])


def joined(parts: Sequence[Chart], dim: int) -> RowTable | None:
    """Maps of one source side by side along an axis."""
    tables = [as_rows(part) for part in parts]
    if any(t is None or t.source != tables[0].source for t in tables):  # type: ignore[union-attr]
        return None
    known = [t for t in tables if t is not None]
    rank = known[0].rows.ndim + 1
    if dim % rank == rank - 1 or any(t.rows.ndim != rank - 1 for t in known):
        return None
    return RowTable(known[0].source, np.concatenate([t.rows for t in known], axis=dim % rank))
