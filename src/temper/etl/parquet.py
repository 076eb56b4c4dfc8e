"""Parquet through pyarrow: the footer, and record batches in bounded pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from temper.etl import kernel
from temper.etl.plan import TEXT_KINDS, ColumnPlan

BATCH_ROWS = 1 << 16
# Bits of PLAIN, PLAIN_DICTIONARY, RLE and RLE_DICTIONARY; and of BIT_PACKED, which old writers
# name for levels that a flat column does not have.
PLAIN_ENCODINGS = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 8 | 1 << 4
WHOLE_GROUP_BYTES = 256 << 20


@dataclass(frozen=True)
class Footer:
    """Types of the columns, and what row groups hold: None if only pyarrow can tell."""

    schema: Any  # pyarrow.Schema
    columns: tuple[Any, ...]  # pyarrow's ColumnSchema of every leaf
    groups: tuple[tuple[int, list[kernel.ChunkMeta]], ...] | None

    def chunks(self, group: int) -> dict[str, kernel.ChunkMeta]:
        if not self.groups:
            return {}
        metas = self.groups[group][1]
        return {column.path: meta for column, meta in zip(self.columns, metas, strict=False)}


def read_footer(path: str, opened: Any = None) -> Footer:
    """What the end of a file says of it; ``opened`` is the file where it is behind a URL."""
    from pyarrow import parquet

    source = path if opened is None else opened
    with parquet.ParquetFile(source) as file:
        schema, metadata = file.schema_arrow, file.metadata
    if source is not path and not isinstance(source, str):
        columns = [metadata.schema.column(index) for index in range(metadata.num_columns)]
        return Footer(schema, tuple(columns), None)
    with open(path, "rb") as raw:
        size = raw.seek(-8, 2)
        length = min(int.from_bytes(raw.read(4), "little"), size)
        raw.seek(size - length)
        groups = kernel.parquet_groups(raw.read(length))
    rows = [count for count, _ in groups]
    whole = len(rows) == metadata.num_row_groups and sum(rows) == metadata.num_rows
    known = tuple(groups) if whole and min(rows, default=0) >= 0 else None
    columns = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    return Footer(schema, tuple(columns), known)


def parquet_batches(
    path: Any, footer: Footer, position: int, plans: Sequence[ColumnPlan]
) -> Iterator[Any]:
    """Record batches with the plan's columns, from row ``position`` on."""
    from pyarrow import parquet

    names = [plan.name for plan in plans]
    with parquet.ParquetFile(path, read_dictionary=_encoded_columns(footer, plans)) as file:
        for index in range(file.num_row_groups):
            rows = file.metadata.row_group(index).num_rows
            if position >= rows:
                position -= rows
                continue
            if _is_small(footer.chunks(index), rows, names):
                found = iter(file.read_row_group(index, names).to_batches())
            else:
                found = file.iter_batches(BATCH_ROWS, row_groups=[index], columns=names)
            yield from after(found, position)
            position = 0


def after(batches: Iterator[Any], skip: int) -> Iterator[Any]:
    """The batches without their first ``skip`` rows."""
    for batch in batches:
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        yield batch.slice(skip) if skip else batch
        skip = 0


def _encoded_columns(footer: Footer, plans: Sequence[ColumnPlan]) -> list[str]:
    """Text columns that the file holds as a dictionary throughout.

    Their chain runs over the few distinct words only. Where the writer gave the dictionary up,
    plain text costs 12 bytes a value, and rebuilding a dictionary would cost more than it saves.
    """
    groups = footer.groups or ()
    chunks = footer.chunks(0)
    text = [column.path for column in footer.columns if column.physical_type == "BYTE_ARRAY"]
    return [
        plan.name
        for plan in plans
        if plan.column.kind in TEXT_KINDS
        and plan.name in text
        and plan.name in chunks
        and chunks[plan.name].unpacked_bytes < 5 * chunks[plan.name].values
        and all(_plain(footer.chunks(index).get(plan.name)) for index in range(len(groups)))
    ]


def _plain(chunk: kernel.ChunkMeta | None) -> bool:
    """Whether pyarrow can give a chunk as a dictionary: it cannot where deltas are stored."""
    return chunk is not None and not chunk.encodings & ~PLAIN_ENCODINGS


def _is_small(chunks: dict[str, kernel.ChunkMeta], rows: int, names: Sequence[str]) -> bool:
    """Whether a row group may be decoded at once, which is faster than in batches."""
    if any(name not in chunks for name in names):
        return False
    # A decoded value takes its bytes and an offset or an index besides.
    return sum(chunks[name].unpacked_bytes + 8 * rows for name in names) < WHOLE_GROUP_BYTES
