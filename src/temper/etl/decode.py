"""Parquet through the native decoder: what it takes, and a file's rows in order.

Values go from their pages straight into the chains' buffers. pyarrow reads the footer and
decompresses pages; it also reads the rest of a file that the decoder gives up on, whether that
holds something the decoder does not know or is damaged, so that there is one judge of files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from temper.etl import kernel, kernel_types
from temper.etl.parquet import BATCH_ROWS, PLAIN_ENCODINGS
from temper.etl.plan import ColumnPlan
from temper.etl.sources import Input

# Parquet's physical types, their number, and the Arrow types that they may stand for.
_TYPES = {
    "INT32": (1, ("int8", "int16", "int32", "uint8", "uint16", "uint32")),
    "INT64": (2, ("int64",)),
    "FLOAT": (4, ("float",)),
    "DOUBLE": (5, ("double",)),
    "BYTE_ARRAY": (6, ("string", "binary", "large_string", "large_binary", "string_view")),
}
Fault = tuple[int, int, int, str]  # row, column, reason, text
Chunk = tuple[int, int, bool, int, int, Callable[[int, int, int], Any] | None]


class Decoder:
    """A file's rows from ``row`` on, as far as the native decoder takes them."""

    def __init__(
        self, source: Input, plans: Sequence[ColumnPlan], plan: kernel.ChainPlan, row: int
    ) -> None:
        self.row = row  # the next one
        self._plans, self._plan = plans, plan
        self._footer = source.footer(plans)
        groups = self._footer.groups
        self._groups = iter(groups or ())
        self._rows = None if groups is None else sum(rows for rows, _ in groups)
        paths = [column.path for column in self._footer.columns]
        self._places = [[k for k, path in enumerate(paths) if path == p.name] for p in plans]
        self._fd = os.open(source.path, os.O_RDONLY)
        self._size = os.fstat(self._fd).st_size
        self._group: kernel.RowGroup | None = None
        self._left, self._skip = 0, row

    def close(self) -> None:
        self._group = None
        os.close(self._fd)

    @property
    def done(self) -> bool:
        return self._rows is not None and self.row >= self._rows

    def read(
        self, buffers: Sequence[kernel_types.Buffer], at: int, room: int
    ) -> tuple[int, list[Fault]]:
        """Writes up to ``room`` rows from ``at`` on; 0 rows when the decoder gives up."""
        try:
            self._next_group()
            while self._skip:
                rows = min(self._skip, room)
                self._take(buffers, at, rows)
                self._skip -= rows
            rows = min(self._left, room, BATCH_ROWS)
            faults = self._take(buffers, at, rows)
        except kernel.UndecodedError:
            return 0, []
        self.row += rows
        return rows, faults

    def _take(self, buffers: Sequence[kernel_types.Buffer], at: int, rows: int) -> list[Fault]:
        assert self._group is not None
        found = self._group.read(rows, [buffer[at : at + rows] for buffer in buffers])
        self._left -= rows
        return [
            (row, index, reason, self._told(index, text))
            for index, bad in enumerate(found)
            for row, reason, text in bad
        ]

    def _next_group(self) -> None:
        while not self._left:
            rows, metas = next(self._groups, (-1, []))
            if rows < 0:
                raise kernel.UndecodedError("the file ends early")
            if self._skip >= rows:
                self._skip -= rows
                continue
            chunks = [self._chunk(rows, metas, index) for index in range(len(self._plans))]
            self._group = self._plan.row_group(self._fd, rows, chunks)
            self._left = rows

    def _chunk(self, rows: int, metas: Sequence[kernel.ChunkMeta], index: int) -> Chunk:
        name = self._plans[index].name
        columns, places = self._footer.columns, self._places[index]
        if len(places) != 1 or len(metas) != len(columns):
            raise kernel.UndecodedError(f"{len(places)} columns {name!r}")
        column, meta = columns[places[0]], metas[places[0]]
        begin = meta.data_page
        if 0 < meta.dictionary_page < begin:
            begin = meta.dictionary_page
        kind = self._footer.schema.field(name).type
        encoded = str(kind).startswith("dictionary")
        kind = str(kind.value_type if encoded else kind)
        number, kinds = _TYPES.get(column.physical_type, (-1, ()))
        text = column.physical_type == "BYTE_ARRAY"
        if (
            meta.type != number
            or kind not in kinds
            or (encoded and not text)
            or column.max_repetition_level
            or column.max_definition_level > 1
            or meta.codec not in _CODECS
            or meta.encodings & ~PLAIN_ENCODINGS
            or meta.values != rows
            or meta.elsewhere
            or min(begin, meta.size_bytes) < 0
            or begin + meta.size_bytes > self._size
        ):
            raise kernel.UndecodedError(f"column {name!r}")
        return (
            index, kernel.SOURCES["string" if text else kind], column.max_definition_level == 1,
            begin, begin + meta.size_bytes, _CODECS[meta.codec](),
        )  # fmt: skip

    def _told(self, index: int, text: bytes) -> str:
        kind = self._footer.schema.field(self._plans[index].name).type
        return str(text) if "binary" in str(kind) else text.decode("utf-8", "replace")


def _snappy() -> Callable[[int, int, int], Any]:
    import pyarrow as pa

    codec = pa.Codec("snappy")

    def unpack(address: int, size: int, room: int) -> Any:
        page = pa.foreign_buffer(address, size)
        # pyarrow does not tell how much it wrote; snappy's first bytes do.
        told = 0
        for place, byte in enumerate(bytes(page[:5])):
            told |= (byte & 127) << 7 * place
            if byte < 128:
                break
        if told != room:
            raise kernel.UndecodedError("a page has another size than its header says")
        return codec.decompress(page, room)

    return unpack


def _streamed(name: str) -> Callable[[int, int, int], Any]:
    import pyarrow as pa

    def unpack(address: int, size: int, room: int) -> Any:
        page = pa.BufferReader(pa.foreign_buffer(address, size))
        with pa.CompressedInputStream(page, name) as stream:
            found = stream.read_buffer(room + 1)
        if found.size != room:
            raise kernel.UndecodedError("a page has another size than its header says")
        return found

    return unpack


# By Parquet's number; LZ4 does not tell how much it wrote.
_CODECS: dict[int, Callable[[], Callable[[int, int, int], Any] | None]] = {
    0: lambda: None,
    1: _snappy,
    2: partial(_streamed, "gzip"),
    4: partial(_streamed, "brotli"),
    6: partial(_streamed, "zstd"),
}
