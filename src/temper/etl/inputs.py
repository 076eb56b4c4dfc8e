"""What a pipeline may be pointed at: files, folders, globs, partitions, URLs, tables in memory."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from temper.errors import UsageError
from temper.etl.parquet import read_footer
from temper.etl.schema import Schema
from temper.etl.sources import FORMATS, Input
from temper.etl.stores import filesystem

# Unless it is asked for otherwise, a split is this much of a file: seconds of work for a task.
SPLIT_BYTES = 256 << 20
_MAGIC = frozenset("*?[")
_OPTIONS = ("delimiter", "header")


def open_sources(inputs: Any, schema: Schema, **options: Any) -> list[Input]:
    """Sources of paths, folders, globs, URLs and tables, each checked to exist.

    Files of a folder are taken by name, those of folders named ``key=value`` with that column.
    """
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise UsageError(
            f"unknown option {', '.join(unknown)} of inputs",
            allowed=_OPTIONS,
            try_="rows_per_part, on_error and columns belong to Pipeline(...)",
        )
    one = isinstance(inputs, (str, os.PathLike)) or as_table(inputs) is not None
    found: list[Input] = []
    for item in [inputs] if one else list(inputs):
        table = as_table(item)
        if table is not None:
            found.append(Input(_TABLE, schema, table=_with_integers(table, schema)))
            continue
        found += _open(str(item), schema, options)
    if not found:
        raise UsageError("no input files", try_="name files, folders or '-' for standard input")
    for source in found:
        suffix = source.suffixes[0]
        if not source.known and source.delimiter is None:
            raise UsageError(
                f"{source.path}: what format is {suffix or 'a file without suffix'}?",
                allowed=sorted(FORMATS),
                try_="--delimiter for other text files",
            )
    return found


_TABLE = "a table in memory"


def as_table(value: Any) -> Any:
    """An Arrow table of what holds columns (Arrow, Polars, pandas), else None."""
    if isinstance(value, (str, os.PathLike, list, tuple)):
        return None
    import pyarrow as pa

    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if hasattr(value, "__arrow_c_stream__"):  # Polars, DuckDB, pandas since 2.2
        return pa.table(value)
    if type(value).__module__.split(".")[0] == "pandas":
        return pa.Table.from_pandas(value, preserve_index=False)
    return None


def check_apart(sources: Iterable[Input], output: str | os.PathLike[str]) -> None:
    """No input lies in the output's folder, where its parts would be taken for inputs."""
    if "://" in str(output):
        return
    folder = os.path.join(os.path.realpath(output), "")
    for source in sources:
        here = source.table is None and source.path != "-" and "://" not in source.path
        if here and os.path.realpath(source.path).startswith(folder):
            raise UsageError(
                f"{source.path} lies in the output folder {os.fspath(output)}",
                needs="an output folder of its own: a later run would read its parts as inputs",
            )


def _with_integers(table: Any, schema: Schema) -> Any:
    """The table with integers where the schema has them and a frame could not.

    A pandas column of integers with gaps holds floats: they are taken where all are whole.
    """
    import pyarrow as pa
    from pyarrow import compute

    names = {column.name for column in schema.columns if column.kind == "int"}
    for place, field in enumerate(table.schema):
        boolean = pa.types.is_boolean(field.type)
        if field.name not in names or not (boolean or pa.types.is_floating(field.type)):
            continue
        try:
            whole = compute.cast(table.column(place), pa.int8() if boolean else pa.int64())
        except pa.ArrowInvalid:  # fractions: the schema's check tells
            continue
        table = table.set_column(place, field.name, whole)
    return table


def _open(path: str, schema: Schema, options: dict[str, Any]) -> list[Input]:
    if path == "-":
        return [Input(path, schema, **options)]
    if "://" in path:
        names = _remote(path)
    elif os.path.isdir(path):
        names = sorted(_below(path))
    elif os.path.isfile(path):
        names = [path]
    elif _MAGIC & set(path):
        matched = sorted(glob.glob(path, recursive=True))
        names = [
            name
            for match in matched
            for name in (sorted(_below(match)) if os.path.isdir(match) else [match])
        ]
        if not names:
            raise UsageError(f"no file matches {path!r}")
    else:
        raise UsageError(f"no input {path!r}")
    wanted = set(schema.names)
    return [Input(name, schema, partitions=_partitions(name, wanted), **options) for name in names]


def _remote(url: str) -> list[str]:
    files, path = filesystem(url)
    scheme = url.split("://", 1)[0]
    try:
        if _MAGIC & set(path):
            names = files.glob(path)
        elif files.isdir(path):
            names = files.find(path)
        else:
            names = [path] if files.exists(path) else []
    except (OSError, ValueError) as error:
        raise UsageError(f"{url} cannot be listed: {error}") from None
    if not names:
        raise UsageError(f"no input {url!r}")
    visible = [name for name in names if not _hidden(name[len(path) :])]
    return [f"{scheme}://{name.lstrip('/')}" for name in sorted(visible)]


def _below(folder: str) -> Iterable[str]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _hidden(name))
        for name in names:
            if not _hidden(name):
                yield os.path.join(root, name)


def _hidden(path: str) -> bool:
    """Names that other tools leave beside data: _SUCCESS, .crc, our own manifest."""
    return any(part.startswith(("_", ".")) for part in path.split("/") if part)


def _partitions(path: str, wanted: set[str]) -> tuple[tuple[str, str], ...]:
    """Columns of the schema that the path's folders name, as Hive and Spark write them."""
    pairs = (part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    return tuple((key, value) for key, value in pairs if key in wanted)


def split_source(source: Input, split_bytes: int = SPLIT_BYTES) -> list[Input]:
    """Parts of a file that tasks can read apart: byte ranges of text, row groups of Parquet."""
    if source.parquet and not source.remote:
        groups = read_footer(source.path).groups
        return [source] if groups is None else _by_groups(source, groups, split_bytes)
    if source.columnar or source.path == "-" or source.suffixes[1] or source.remote:
        return [source]
    size = source.size_bytes
    count = max(1, -(-size // split_bytes))
    edges = [size * number // count for number in range(count + 1)]
    return [replace(source, begin=edges[number], end=edges[number + 1]) for number in range(count)]


def _by_groups(
    source: Input, groups: Sequence[tuple[int, Sequence[Any]]], split_bytes: int
) -> list[Input]:
    parts: list[Input] = []
    first = row = held = 0
    for rows, chunks in groups:
        row += rows
        held += sum(max(0, chunk.size_bytes) for chunk in chunks)
        if held >= split_bytes:
            parts.append(replace(source, begin=first, end=row))
            first, held = row, 0
    if row > first or not parts:
        parts.append(replace(source, begin=first, end=row))
    return parts
