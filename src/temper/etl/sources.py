"""Inputs of a pipeline: delimited text, Parquet and Arrow, read in bounded pieces."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temper.errors import BadFileError
from temper.etl.kernel import READABLE
from temper.etl.parquet import Footer, after, parquet_batches, read_footer
from temper.etl.plan import ColumnPlan
from temper.etl.schema import Schema
from temper.etl.stores import filesystem

# Text parsed between two looks at the vocabularies: its columns are still in the shared cache.
STEP_BYTES = 8 << 20
BLOCK_BYTES = 256 << 10  # the kernels' unit (kernels/etl_text.hpp, kBlock)
_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
_TEXT = {".tsv": "\t", ".txt": "\t", ".csv": ","}
_PARQUET = {".parquet", ".pq"}
# What stores call the version of an object.
_VERSIONS = ("ETag", "LastModified", "mtime", "created")
_ARROW = {".arrow", ".arrows", ".feather", ".ipc"}
FORMATS = {*_TEXT, *_PARQUET, *_ARROW}


@dataclass(frozen=True)
class TextWindow:
    """Text to parse: a file descriptor or memory, and where in the file it begins."""

    source: int | memoryview
    size: int
    begin: int
    base: int  # file position of the window's byte 0
    stop: int  # rows that start here or later belong to somebody else


@dataclass(frozen=True)
class Input:
    """One input file, and the schema it must have."""

    path: str
    schema: Schema
    delimiter: str | None = None
    header: bool | None = None  # None: a header is there when the first line names the columns
    partitions: tuple[tuple[str, str], ...] = ()  # columns that the path names
    # The part of it that is read: rows that start at these bytes of text, or these rows of columns.
    begin: int = 0
    end: int | None = None
    table: Any = field(default=None, repr=False, compare=False)  # an Arrow table in memory

    @property
    def suffixes(self) -> tuple[str, str]:
        """The format's suffix and the compression's, e.g. (".tsv", "gzip")."""
        name = Path(self.path).name.lower()
        stem, suffix = os.path.splitext(name)
        if suffix in _COMPRESSED:
            return os.path.splitext(stem)[1], _COMPRESSED[suffix]
        return suffix, ""

    @property
    def known(self) -> bool:
        """Whether its name, or being a table, says what it holds."""
        return self.table is not None or self.path == "-" or self.suffixes[0] in FORMATS

    @property
    def remote(self) -> bool:
        return "://" in self.path

    @property
    def constants(self) -> dict[str, str]:
        """Columns that every row has the same text for."""
        return dict(self.partitions)

    @property
    def columnar(self) -> bool:
        return self.table is not None or self.parquet or self.suffixes[0] in _ARROW

    @property
    def parquet(self) -> bool:
        return self.path != "-" and self.suffixes[0] in _PARQUET

    @property
    def size_bytes(self) -> int:
        if self.table is not None:
            return int(self.table.nbytes)
        if self.path == "-":
            return 0
        if self.remote:
            return int(self._info().get("size") or 0)
        size = os.stat(self.path).st_size
        return size if self.columnar or self.end is None else min(size, self.end) - self.begin

    def fingerprint(self) -> dict[str, Any]:
        """What must not change between an interrupted run and its continuation."""
        if self.path == "-":
            return {"path": "-"}
        if self.table is not None:
            digest = hashlib.sha256()
            for batch in self.table.to_batches():
                digest.update(batch.serialize())
            return {"table": digest.hexdigest()}
        if self.remote:
            info = self._info()
            told = {name: str(value) for name, value in info.items() if name in _VERSIONS}
            return {"path": self.path, "size": info.get("size"), **told}
        status = os.stat(self.path)
        text = {} if self.columnar else {"delimiter": self.separator(), "header": self.header}
        return {"path": self.path, "size": status.st_size, "mtime_ns": status.st_mtime_ns, **text}

    def _info(self) -> dict[str, Any]:
        files, path = filesystem(self.path)
        found: dict[str, Any] = files.info(path)
        return found

    def opened(self) -> Any:
        """The file's path for pyarrow, or an open file where it is behind a URL."""
        if not self.remote:
            return self.path
        files, path = filesystem(self.path)
        return files.open(path, "rb")

    def separator(self) -> str:
        return self.delimiter or _TEXT.get(self.suffixes[0], "\t")

    @contextmanager
    def text(self, position: int) -> Iterator[tuple[tuple[str, ...], Iterator[TextWindow]]]:
        """The file's column names in order, and windows of text from ``position`` on."""
        compression = self.suffixes[1]
        if self.path != "-" and not compression and not self.remote:
            fd = os.open(self.path, os.O_RDONLY)
            try:
                size = os.fstat(fd).st_size
                names, begin = self.layout(os.pread(fd, 1 << 16, 0))
                first = max(begin, position, _row_start(fd, self.begin))
                stop = size if self.end is None else min(size, self.end)
                yield names, iter([TextWindow(fd, size, first, 0, stop)])
            finally:
                os.close(fd)
            return
        import pyarrow as pa

        raw = sys.stdin.buffer if self.path == "-" else self.opened()
        with pa.input_stream(raw, compression=compression or None) as stream:
            head = _read(stream, 1 << 16)
            names, begin = self.layout(head)
            yield names, _windows(stream, head, max(begin, position))

    def layout(self, head: bytes) -> tuple[tuple[str, ...], int]:
        """Column names in file order and where the first row starts; checks the column count."""
        inside = [name for name in self.schema.names if name not in self.constants]
        begin = 3 if head.startswith(b"\xef\xbb\xbf") else 0
        if len(inside) > 1:  # empty lines are no rows
            begin = len(head) - len(head[begin:].lstrip(b"\r\n"))
        lines = head[begin:].split(b"\n")
        complete = lines if len(head) < 1 << 16 else lines[:-1]
        rows = [line.rstrip(b"\r").decode("utf-8", "replace") for line in complete[:20]]
        fields = [name.strip(' "') for name in rows[0].split(self.separator())] if rows else []
        known = [name for name in inside if name in fields]
        header = self.header if self.header is not None else len(known) > len(fields) / 2
        if header and fields != [""]:
            missing = [name for name in inside if name not in fields]
            if missing:
                raise BadFileError(
                    f"{self.path}: the header lacks {', '.join(missing)}",
                    needs=f"the columns of schema {self.schema.name!r}",
                    found=", ".join(fields),
                )
            return tuple(fields), begin + len(complete[0]) + 1
        want = len(inside)
        counts = {len(row.split(self.separator())) for row in rows if row}
        if counts and want not in counts:
            raise BadFileError(
                f"{self.path} has {' or '.join(map(str, sorted(counts)))} columns, "
                f"schema {self.schema.name!r} has {want}",
                try_=["another delimiter", "a schema that names the file's columns"],
            )
        return tuple(inside), begin

    def footer(self, plans: Sequence[ColumnPlan]) -> Footer:
        """The footer of Parquet that has the plan's columns."""
        with _told(self.path):
            footer = read_footer(self.path, self.opened())
            self.check(footer.schema, plans)
            return footer

    def batches(self, position: int, plans: Sequence[ColumnPlan]) -> Iterator[Any]:
        """Record batches with the plan's columns, from row ``position`` on."""
        import pyarrow as pa

        plans = [plan for plan in plans if plan.name not in self.constants]
        names = [plan.name for plan in plans]
        with _told(self.path):
            if self.table is not None:
                self.check(self.table.schema, plans)
                yield from after(iter(self.table.select(names).to_batches()), position)
                return
            if self.parquet:
                yield from parquet_batches(self.opened(), self.footer(plans), position, plans)
                return
            whole = pa.PythonFile(self.opened()) if self.remote else pa.memory_map(self.path)
            with whole as memory:
                try:
                    reader: Any = pa.ipc.open_file(memory)
                    found = (reader.get_batch(i) for i in range(reader.num_record_batches))
                except pa.ArrowInvalid:
                    memory.seek(0)
                    reader = found = pa.ipc.open_stream(memory)
                self.check(reader.schema, plans)
                yield from after((batch.select(names) for batch in found), position)

    def check(self, schema: Any, plans: Sequence[ColumnPlan]) -> None:
        """The file has every column that the plan reads, in a type that its chain can take."""
        missing = [plan.name for plan in plans if plan.name not in schema.names]
        if missing:
            raise BadFileError(
                f"{self.path} lacks the columns {', '.join(missing)}",
                needs=f"the columns of schema {self.schema.name!r}",
                found=", ".join(schema.names),
            )
        for plan in plans:
            kind = schema.field(plan.name).type
            name = str(kind.value_type if str(kind).startswith("dictionary") else kind)
            readable = name in READABLE or name in ("string_view", "halffloat")
            fractional = name in ("halffloat", "float", "double") and plan.chain_type != "float32"
            word = name in ("string", "binary", "large_string", "large_binary", "string_view")
            numeric = plan.column.kind == "text" and not word
            if not readable or numeric or (fractional and plan.column.kind != "float"):
                needs = {"hex": "hexadecimal text or integers", "text": "text"}
                raise BadFileError(
                    f"{self.path}: column {plan.name!r} is {kind}, its chain needs "
                    + needs.get(plan.column.kind, "integers")
                )


@contextmanager
def _told(path: str) -> Iterator[None]:
    """A file that pyarrow cannot read is a user's bad file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, ValueError, OSError) as error:  # names that are no UTF-8 are, too
        raise BadFileError(f"{path} cannot be read: {error}") from None


def dense_array(array: Any) -> Any:
    """An array whose buffers the kernels can read."""
    import pyarrow as pa

    if str(array.type) == "string_view":
        return array.cast(pa.string())
    if str(array.type) == "halffloat":
        return array.cast(pa.float32())
    return array


def shown(value: Any) -> str:
    """An Arrow scalar for people, also where its text is no UTF-8."""
    try:
        return str(value)
    except UnicodeDecodeError:
        plain = value.value if str(value.type).startswith("dictionary") else value
        return bytes(plain.as_buffer()).decode("utf-8", "replace")


def _read(stream: Any, count: int) -> bytes:
    pieces: list[bytes] = []
    while count > 0:
        piece = stream.read(count)
        if not piece:
            break
        pieces.append(bytes(piece))
        count -= len(piece)
    return b"".join(pieces)


def _windows(stream: Any, head: bytes, position: int) -> Iterator[TextWindow]:
    """Whole rows of a stream, in pieces; ``position`` counts decompressed bytes."""
    carry, base = head, 0
    while base + len(carry) <= position:
        base += len(carry)
        carry = _read(stream, STEP_BYTES)
        if not carry:
            return
    carry, base = carry[position - base :], position
    while True:
        piece = _read(stream, STEP_BYTES)
        data = carry + piece
        if not data:
            return
        cut = data.rfind(b"\n") + 1 if piece else len(data)
        if cut:
            yield TextWindow(memoryview(data)[:cut], cut, 0, base, cut)
        carry, base = data[cut:], base + cut
        if len(carry) > 2 * STEP_BYTES:
            raise BadFileError("a row is longer than 16 MiB: is this a text file?")
        if not piece:
            return


def _row_start(fd: int, begin: int) -> int:
    """Where the first row starts that does not start before ``begin``."""
    if begin == 0:
        return 0
    at = begin - 1  # a row may start exactly there
    while True:
        piece = os.pread(fd, 1 << 16, at)
        if not piece:
            return at
        found = piece.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(piece)
