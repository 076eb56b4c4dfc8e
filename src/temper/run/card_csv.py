"""Reading ops CSVs, ours or recorded on a card: old and new column names, damage and all.

Only the columns that reports use are decoded, and text is decoded once for each distinct value:
a hundred thousand rows take well under a second.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from temper.errors import BadFileError
from temper.run.card_columns import build_table, wanted_columns
from temper.run.csv_columns import NUMERIC
from temper.run.table import OpTable, Text

_REQUIRED = "OP CODE"
_MAX_HEADER_BYTES = 1 << 20
_MAX_UNPACKED_BYTES = 1 << 30
# Below this many bytes one thread does it: handing blocks around costs a quarter more CPU time.
_SHARED = 1 << 28
_BLOCK_BYTES = 1 << 20  # what the caches of a core hold: a third less CPU time than blocks of 16 MB


def read_ops_csv(path: Path, chip: str = "") -> OpTable:
    """The ops of a CSV. Bad rows are left out and counted in ``notes``; ``chip`` is the card's,
    where the file does not say."""
    try:
        with path.open("rb") as file:
            head = file.read(_MAX_HEADER_BYTES)
    except OSError as error:
        raise BadFileError(f"cannot read {path}: {error.strerror or error}") from error
    if not head.strip():
        raise BadFileError(f"{path} is empty")
    notes: list[str] = []
    data: Path | bytes = path
    if head[:2] == b"\x1f\x8b":
        data = _unpacked(path)
        head = data[:_MAX_HEADER_BYTES]
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raw = data if isinstance(data, bytes) else data.read_bytes()
        data = raw.decode("utf-16", "replace").encode()
        head = data[:_MAX_HEADER_BYTES]
        notes.append("the file was UTF-16")
    header, delimiter = _header(path, head)
    columns = _read_columns(data, header, delimiter, notes)
    try:
        return build_table(columns, notes, chip)
    except BadFileError as error:
        raise BadFileError(f"{path}, {error.what}") from None


def _unpacked(path: Path) -> bytes:
    """The bytes of a gzip file, as far as memory may be given to a stranger's file."""
    try:
        with gzip.open(path) as file:
            data = file.read(_MAX_UNPACKED_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadFileError(f"{path} is a damaged gzip file: {error}") from error
    if len(data) > _MAX_UNPACKED_BYTES:
        raise BadFileError(
            f"{path} unpacks to more than {_MAX_UNPACKED_BYTES:,} B",
            try_=f"gunzip -k {path}, and the file that comes of it",
        )
    return data


def _header(path: Path, head: bytes) -> tuple[list[str], str]:
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    line = text.splitlines()[0] if text.splitlines() else ""
    for delimiter in (",", ";", "\t"):
        try:
            names = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:
            continue
        names = [name.strip() for name in names]
        if _REQUIRED in names:
            return names, delimiter
    first = ", ".join(line[:60].split(",")[:3]) or "nothing readable"
    raise BadFileError(
        f"{path} is no ops CSV: its first line has no {_REQUIRED!r} column",
        found=first,
        try_="the file named ops_perf_results*.csv of a profiler run",
    )


class Columns:
    """Columns by name: numbers, or text with few distinct values."""

    def __init__(
        self, rows: int, texts: dict[str, Text], numbers: dict[str, np.ndarray] | None = None
    ) -> None:
        self.rows = rows
        self._texts = texts
        self._numbers = numbers or {}

    def __contains__(self, name: str) -> bool:
        return name in self._texts or name in self._numbers

    def text(self, *names: str) -> Text:
        """The first of these columns that is there; empty text when none is."""
        for name in names:
            if name in self._texts:
                return self._texts[name]
        return Text.constant("", self.rows)

    def number(self, *names: str) -> np.ndarray:
        """Finite numbers; anything else is NaN."""
        for name in names:
            if name in self._numbers:
                found = self._numbers[name]
                return np.where(np.isfinite(found), found, np.nan)
        column = self.text(*names)
        return column.numbers([to_number(value) for value in column.values])


def to_number(text: str) -> float:
    """A cell as a number; NaN where it is empty or none."""
    try:
        number = float(text)
    except ValueError:
        return float("nan")
    return number if np.isfinite(number) else float("nan")


def _read_columns(
    data: Path | bytes, header: list[str], delimiter: str, notes: list[str]
) -> Columns:
    unique = _unique(header)
    wanted = [name for name in unique if wanted_columns(name)]
    numeric = [name for name in wanted if name in NUMERIC]
    # Numbers are converted as they are parsed; one word among them makes all of them text.
    problem = ""
    for numbers in (numeric, []):
        try:
            table, bad = _read_fast(data, unique, wanted, numbers, delimiter)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, OSError) as error:
            problem = str(error).splitlines()[0][:120]
            continue
        if bad:
            notes.append(f"{bad} rows with a wrong number of cells left out")
        texts = {name: _text(table.column(name)) for name in wanted if name not in numbers}
        values = {
            name: np.concatenate(
                [np.zeros(0), *(_values(chunk, np.nan) for chunk in table.column(name).chunks)]
            )
            for name in numbers
        }
        return Columns(table.num_rows, texts, values)
    notes.append(f"read row by row, because of: {problem}")
    return _read_slowly(data, unique, wanted, delimiter, notes)


def _read_fast(
    data: Path | bytes, names: list[str], wanted: list[str], numbers: list[str], delimiter: str
) -> tuple[pa.Table, int]:
    bad = 0

    def skip(_: pa_csv.InvalidRow) -> str:
        nonlocal bad
        bad += 1
        return "skip"

    text = pa.dictionary(pa.int32(), pa.binary())
    types = {name: pa.float64() if name in numbers else text for name in wanted}
    with _quiet():
        table = _parse(data, names, wanted, types, delimiter, skip)
    return table, bad


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Arrow cannot tell the handler of a bad row that is no UTF-8, and says so on stderr."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = before


def _parse(
    data: Path | bytes,
    names: list[str],
    wanted: list[str],
    types: dict[str, pa.DataType],
    delimiter: str,
    skip: Callable[[pa_csv.InvalidRow], str],
) -> pa.Table:
    size = len(data) if isinstance(data, bytes) else data.stat().st_size
    return pa_csv.read_csv(
        pa.BufferReader(data) if isinstance(data, bytes) else str(data),
        read_options=pa_csv.ReadOptions(
            column_names=names, skip_rows=1, block_size=_BLOCK_BYTES, use_threads=size > _SHARED
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=delimiter, invalid_row_handler=skip, newlines_in_values=False
        ),
        convert_options=pa_csv.ConvertOptions(
            include_columns=wanted, column_types=types, strings_can_be_null=False
        ),
    )


def _unique(header: list[str]) -> list[str]:
    """Repeated names get a suffix, so that the first one is the one that counts."""
    seen: dict[str, int] = {}
    names = []
    for name in header:
        count = seen.get(name, 0)
        seen[name] = count + 1
        names.append(f"{name}\x00{count}" if count else name)
    return names


def _text(column: pa.ChunkedArray) -> Text:
    combined = column.unify_dictionaries().combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        combined = combined.chunk(0) if combined.num_chunks else pa.array([], column.type)
    codes = _values(combined.indices, 0)
    values = [_decode(value) for value in combined.dictionary.to_pylist()]
    return Text(codes.astype(np.int32), values or [""])


def _values(array: pa.Array, missing: float) -> np.ndarray:
    """The numbers of an Arrow array, with something where there is none.

    Its own ``to_numpy`` imports pandas where that is installed, which takes longer than the file.
    """
    valid, data = array.buffers()
    first, end = array.offset, array.offset + len(array)
    kind = np.float64 if pa.types.is_float64(array.type) else np.int32
    found: np.ndarray = np.frombuffer(data, kind, count=end)[first:] if len(array) else np.zeros(0)
    if array.null_count:
        bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[first:end]
        found = np.where(bits.astype(bool), found, missing)
    return found


def _decode(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace").strip()


def _read_slowly(
    data: Path | bytes, names: list[str], wanted: list[str], delimiter: str, notes: list[str]
) -> Columns:
    """For files that the fast reader refuses, such as one with an unclosed quote."""
    raw = data if isinstance(data, bytes) else data.read_bytes()
    lines = io.StringIO(raw.decode("utf-8", "replace").replace("\0", " "), newline="")
    csv.field_size_limit(1 << 24)
    rows: dict[str, list[str]] = {name: [] for name in wanted}
    places = [(name, names.index(name)) for name in wanted]
    short = 0
    reader = csv.reader(lines, delimiter=delimiter)
    next(reader, None)
    while True:
        try:
            row = next(reader, None)
        except csv.Error:
            short += 1
            continue
        if row is None:
            break
        if len(row) != len(names):
            short += bool(row)
            continue
        for name, place in places:
            rows[name].append(row[place].strip())
    if short:
        notes.append(f"{short} rows with a wrong number of cells left out")
    count = len(next(iter(rows.values()), []))
    return Columns(count, {name: Text.of(column) for name, column in rows.items()})
