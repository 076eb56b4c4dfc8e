"""Runs a plan over sources: text and columns into reused buffers, then vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from temper.errors import BadFileError
from temper.etl import arrow, kernel, kernel_types
from temper.etl.batches import expand, gather, partition_word, with_constant
from temper.etl.decode import Decoder
from temper.etl.plan import KIND_CODES, ColumnPlan, Step
from temper.etl.schema import Schema
from temper.etl.sources import BLOCK_BYTES, STEP_BYTES, Input, dense_array, shown

_EXAMPLES = 5


@dataclass
class Counters:
    """What happened so far; figures are exact counts."""

    rows: int = 0
    lines: int = 0
    malformed: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    unseen: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Counters:
        return Counters(self.rows, self.lines, dict(self.malformed), list(self.examples),
                        dict(self.unseen))  # fmt: skip


@dataclass(frozen=True)
class Position:
    """Where the next row lies: file number, byte (text) or row (columns), lines of it read."""

    file: int = 0
    offset: int = 0
    line: int = 0


@dataclass(frozen=True)
class RowsPart:
    """Finished rows and the position behind them."""

    batch: Any  # pyarrow.RecordBatch over the executor's buffers
    position: Position
    counters: Counters


class Buffers:
    """One array a column for the chain and, where keys are int64, one for identifiers."""

    def __init__(self, plans: Sequence[ColumnPlan], capacity: int) -> None:
        self.chain = [np.empty(capacity, dtype=plan.chain_type) for plan in plans]
        self.out = [
            np.empty(capacity, dtype=np.int32)
            if plan.map and plan.chain_type in ("int64", "uint64")
            else chain
            for plan, chain in zip(plans, self.chain, strict=True)
        ]

    def first(self, rows: int) -> Buffers:
        """A copy of the first rows, no larger than they are."""
        made = Buffers((), 0)
        made.chain = [column[:rows].copy() for column in self.chain]
        made.out = [
            own if out is column else out[:rows].copy()
            for own, column, out in zip(made.chain, self.chain, self.out, strict=True)
        ]
        return made


@dataclass
class Cursor:
    """The buffers being filled and the first free row in them."""

    buffers: Buffers
    at: int = 0


class ChainExecutor:
    """``modes`` says for each vocabulary column whether it grows, counts or maps."""

    def __init__(
        self,
        plans: Sequence[ColumnPlan],
        schema: Schema,
        *,
        on_error: str,
        vocabularies: Mapping[str, kernel_types.Vocabulary],
        modes: Mapping[str, int],
        rows_per_part: int,
    ) -> None:
        self.plans = tuple(plans)
        self.schema = schema
        self.on_error = on_error
        self.vocabularies = vocabularies
        self.modes = modes
        self.rows_per_part = rows_per_part
        self.capacity = max(rows_per_part, kernel_types.MOST_ROWS_A_BLOCK)
        self.counters = Counters()
        self._kernels: dict[tuple[str, ...], kernel.ChainPlan] = {}
        self._columnar = kernel.ChainPlan([plan.kernel_spec for plan in self.plans])
        self._spare: list[Buffers] = []

    def release(self, buffers: Buffers) -> None:
        """Gives buffers back for the next part."""
        self._spare.append(buffers)

    def kept(self, part: RowsPart, buffers: Buffers) -> Any:
        """The batch of a part for a caller who keeps it: a short one does not hold buffers that
        are made for a whole part, which serve the next."""
        rows = part.batch.num_rows
        if rows * 2 >= self.capacity:
            return part.batch
        batch = self._batch(buffers.first(rows), rows)
        self.release(buffers)
        return batch

    def parts(
        self, sources: Sequence[Input], start: Position | None = None
    ) -> Iterator[tuple[RowsPart, Buffers]]:
        """Finished parts of about ``rows_per_part`` rows; hand each one's buffers to release()."""
        cursor = Cursor(self._take())
        start = position = start or Position()
        for number in range(start.file, len(sources)):
            source = sources[number]
            offset, line = (start.offset, start.line) if number == start.file else (0, 0)
            for rows, after, lines in self._fill(source, offset, line, cursor):
                self._words(cursor.buffers, cursor.at, rows)
                cursor.at += rows
                line += lines
                self.counters.rows += rows
                self.counters.lines += lines
                position = Position(number, after, line)
                if cursor.at >= self.rows_per_part or (rows == 0 and lines == 0):
                    yield self._part(cursor, position), cursor.buffers
                    cursor.buffers, cursor.at = self._take(), 0
            position = Position(number + 1)
        yield self._part(cursor, position), cursor.buffers

    def _take(self) -> Buffers:
        return self._spare.pop() if self._spare else Buffers(self.plans, self.capacity)

    def _part(self, cursor: Cursor, position: Position) -> RowsPart:
        return RowsPart(self._batch(cursor.buffers, cursor.at), position, self.counters.copy())

    def _fill(
        self, source: Input, offset: int, line: int, cursor: Cursor
    ) -> Iterator[tuple[int, int, int]]:
        """Yields (rows written, position behind them, lines read); zeros mean: make room."""
        try:
            if source.columnar:
                yield from self._columns(source, offset, cursor)
            else:
                yield from self._text(source, offset, line, cursor)
        except OSError as error:
            raise BadFileError(f"{source.path} cannot be read: {error.strerror or error}") from None

    def _text(
        self, source: Input, offset: int, line: int, cursor: Cursor
    ) -> Iterator[tuple[int, int, int]]:
        with source.text(offset) as (names, windows):
            plan = self._kernel(names)
            constants = self._constants(source)
            order = {name: index for index, name in enumerate(names)}
            for window in windows:
                pos = window.begin
                while pos < window.stop:
                    buffers, at = cursor.buffers, cursor.at
                    outs: list[Any] = [None] * len(names)
                    for index, item in enumerate(self.plans):
                        if index not in constants:
                            outs[order[item.name]] = buffers.chain[index]
                    room = max(self.rows_per_part - at, 1)
                    step = min(STEP_BYTES, max(BLOCK_BYTES, room * 256))
                    parsed = plan.parse(
                        window.source, window.size, (pos, min(pos + step, window.stop)), outs, at,
                        self.capacity, source.separator(), self.on_error,
                    )  # fmt: skip
                    if parsed.fault:
                        raise BadFileError(
                            f"{source.path} near byte {window.base + parsed.next}: "
                            + ("the file cannot be read" if parsed.fault == "read" else
                               "a row is longer than 16 MiB: is this a text file?")
                        )  # fmt: skip
                    for bad in parsed.malformed:
                        column = names[bad.column] if bad.column >= 0 else ""
                        self._note(source, line + bad.line + 1, column, bad.reason, bad.text)
                    for reason, count in enumerate(parsed.reasons):
                        self._count(reason, count)
                    for index, value in constants.items():
                        buffers.chain[index][at : at + parsed.rows] = value
                    line += parsed.lines
                    pos = parsed.next
                    yield parsed.rows, window.base + pos, parsed.lines

    def _constants(self, source: Input) -> dict[int, Any]:
        """What the chains make of the columns that the source's path names."""
        import pyarrow as pa

        made: dict[int, Any] = {}
        for index, plan in enumerate(self.plans):
            if plan.name in source.constants:
                word = source.constants[plan.name]
                given = pa.array([partition_word(word)], pa.string())
                out = np.empty(1, dtype=plan.chain_type)
                [wrong] = self._columnar.apply([(index, given, out)])
                if wrong:
                    self._note(source, 0, plan.name, wrong[0][1], word)
                made[index] = out[0]
        return made

    def _kernel(self, names: tuple[str, ...]) -> kernel.ChainPlan:
        if names not in self._kernels:
            by_name = {plan.name: plan.kernel_spec for plan in self.plans}
            skip: tuple[int, int, float, list[Step]] = (KIND_CODES["skip"], 1, 0.0, [])
            self._kernels[names] = kernel.ChainPlan([by_name.get(name, skip) for name in names])
        return self._kernels[names]

    def _columns(
        self, source: Input, offset: int, cursor: Cursor
    ) -> Iterator[tuple[int, int, int]]:
        offset = max(offset, source.begin)
        native = source.parquet and kernel.native() and not source.remote
        if native and not source.constants:
            with closing(Decoder(source, self.plans, self._columnar, offset)) as decoder:
                yield from self._decoded(source, decoder, cursor)
                if decoder.done or decoder.row == source.end:
                    return
                offset = decoder.row
        for found in source.batches(offset, self.plans):
            left = found.num_rows if source.end is None else max(0, source.end - offset)
            whole = found.slice(0, left)
            for name, word in source.constants.items():
                whole = with_constant(whole, name, word)
            done = 0
            while done < whole.num_rows:
                buffers, at = cursor.buffers, cursor.at
                batch = whole.slice(done, self.rows_per_part - at)
                kept = self._apply(source, batch, buffers, at, offset)
                done += batch.num_rows
                offset += batch.num_rows
                yield kept, offset, batch.num_rows

    def _decoded(
        self, source: Input, decoder: Decoder, cursor: Cursor
    ) -> Iterator[tuple[int, int, int]]:
        """Rows that the native decoder takes; it may give up before the file ends."""
        while not decoder.done:
            buffers, at, first = cursor.buffers, cursor.at, decoder.row
            room = self.rows_per_part - at
            if source.end is not None:
                room = min(room, source.end - first)
                if room <= 0:
                    return
            rows, faults = decoder.read(buffers.chain, at, room)
            if not rows:
                return
            texts = {(row, index): text for row, index, _, text in faults}
            found = [(row, index, reason) for row, index, reason, _ in faults]
            kept = self._drop(source, rows, buffers, at, first, found, texts.__getitem__)
            yield kept, decoder.row, rows

    def _apply(self, source: Input, batch: Any, buffers: Buffers, at: int, first: int) -> int:
        """One record batch through the chains; returns the rows kept."""
        import pyarrow as pa

        rows = int(batch.num_rows)
        work: list[tuple[int, Any, Any]] = []
        encoded: dict[int, tuple[Any, Any, Any]] = {}
        for index, plan in enumerate(self.plans):
            array = dense_array(batch.column(batch.schema.get_field_index(plan.name)))
            out = buffers.chain[index][at : at + rows]
            if str(array.type).startswith("dictionary"):
                # The chain runs over the dictionary only; the slot behind it is for nulls.
                words = dense_array(array.dictionary)
                small = np.empty(len(words) + 1, dtype=out.dtype)
                work.append((index, words, small[:-1]))
                work.append((index, pa.nulls(1, pa.string()), small[-1:]))
                encoded[index] = (array.indices, small, out)
            else:
                work.append((index, array, out))
        wrong: dict[int, list[tuple[int, int]]] = {}
        for (index, _, _), found in zip(work, self._columnar.apply(work), strict=True):
            wrong.setdefault(index, []).extend(found)
        for index, (indices, small, out) in encoded.items():
            wrong[index] = gather(indices, small, out, dict(wrong[index]))
        faults = [(row, index, why) for index, found in wrong.items() for row, why in found]

        def text(place: tuple[int, int]) -> str:
            row, index = place
            return shown(batch.column(batch.schema.get_field_index(self.plans[index].name))[row])

        return self._drop(source, rows, buffers, at, first, faults, text)

    def _drop(
        self, source: Input, rows: int, buffers: Buffers, at: int, first: int,
        faults: list[tuple[int, int, int]], text: Callable[[tuple[int, int]], str],
    ) -> int:  # fmt: skip
        """Counts malformed rows and, unless they are filled, takes them out."""
        if not faults:
            return rows
        seen: set[int] = set()
        for row, index, reason in sorted(faults):
            if row in seen:
                continue
            seen.add(row)
            name = self.plans[index].name
            self._note(source, first + row + 1, name, reason, text((row, index)))
            self._count(reason, 1)
        if self.on_error == "fill":
            return rows
        keep = np.setdiff1d(np.arange(rows), np.fromiter(seen, dtype=np.int64))
        for chain in buffers.chain:
            chain[at : at + len(keep)] = chain[at + keep]
        return len(keep)

    def _note(self, source: Input, line: int, column: str, reason: int, text: str) -> None:
        behind = f" behind byte {source.begin}" if source.begin and not source.columnar else ""
        where = f"{source.path}, row {line}{behind}" + (f", column {column}" if column else "")
        told = f"{where}: {kernel_types.REASONS[reason]}: {text!r}"
        if self.on_error == "error":
            raise BadFileError(
                told,
                try_=["on_error='skip' to leave such rows out", "'fill' to take them as missing"],
            )
        if len(self.counters.examples) < _EXAMPLES:
            self.counters.examples.append(told)

    def _count(self, reason: int, count: int) -> None:
        if count and reason:
            name = kernel_types.REASONS[reason]
            self.counters.malformed[name] = self.counters.malformed.get(name, 0) + count

    def _words(self, buffers: Buffers, at: int, rows: int) -> None:
        """Runs the vocabularies over the rows just written, columns in parallel."""
        tasks: dict[str, kernel_types.Task] = {}
        for index, plan in enumerate(self.plans):
            if plan.name not in self.modes or not rows:
                continue
            oov = plan.map.oov if plan.map else 0
            values, out = buffers.chain[index], buffers.out[index]
            tasks[plan.name] = kernel_types.Task(
                self.vocabularies[plan.name], self.modes[plan.name], values[at : at + rows],
                out[at : at + rows], oov + 1, oov,
            )  # fmt: skip
        counts = kernel.run_vocabularies(list(tasks.values())) if tasks else []
        for (name, task), unseen in zip(tasks.items(), counts, strict=True):
            if unseen:
                self.counters.unseen[name] = self.counters.unseen.get(name, 0) + unseen
            if task.vocabulary.full:
                raise BadFileError(
                    f"column {name!r} has more distinct values than its vocabulary may track",
                    needs=f"more than {len(task.vocabulary):,} values",
                    try_=["Modulus(divisor) before VocabGen", "a larger max_tracked"],
                )

    def _batch(self, buffers: Buffers, rows: int) -> Any:
        import pyarrow as pa

        arrays = [
            expand(plan, out[:rows]) if plan.expand else arrow.numbers(out[:rows])
            for plan, out in zip(self.plans, buffers.out, strict=True)
        ]
        fields = [
            pa.field(plan.name, array.type, nullable=False)
            for plan, array in zip(self.plans, arrays, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def total_bytes(sources: Sequence[Input]) -> int:
    """Bytes of all inputs."""
    return sum(source.size_bytes for source in sources)
