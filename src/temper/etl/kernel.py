"""One interface to the preprocessing kernels: the native library, or its slow pure twin."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from temper._version import __version__
from temper.etl import pure
from temper.etl.kernel_types import (
    POLICIES,
    Buffer,
    Malformed,
    Parsed,
    Task,
    Vocabulary,
)
from temper.kernels import native as _native


def native() -> bool:
    """Whether the compiled kernels are used; TEMPER_PURE=1 asks for the pure twin."""
    return _native is not None and not os.environ.get("TEMPER_PURE")


def _compiled() -> Any:
    return _native


def threads() -> int:
    """Worker threads: as many as the process may use cores."""
    asked = os.environ.get("TEMPER_ETL_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0))


class UndecodedError(Exception):
    """The native decoder does not take this part of a Parquet file."""


class RowGroup:
    """One row group of Parquet, decoded from its first row to its last."""

    def __init__(self, made: Any) -> None:
        self._native = made

    def read(self, rows: int, outs: Sequence[Buffer]) -> list[list[tuple[int, int, bytes]]]:
        """The next rows of every column; returns malformed ones, the first few with their text."""
        try:
            addresses = [out.ctypes.data for out in outs]
            bad: list[list[tuple[int, int, bytes]]] = self._native.read(rows, addresses, threads())
        except RuntimeError as error:
            raise UndecodedError(str(error)) from None
        return bad


class ChainPlan:
    """Chains of columns, ready to run over text, Arrow arrays or Parquet."""

    def __init__(self, specs: Sequence[tuple[int, int, float, list[Any]]]) -> None:
        self._specs = list(specs)
        if native():
            self._native: Any = _compiled().EtlPlan(self._specs)
        else:
            self._native = None
            self._pure = pure.PurePlan(self._specs)

    def parse(
        self,
        source: int | memoryview,
        size: int,
        span: tuple[int, int],
        outs: Sequence[Buffer | None],
        at: int,
        capacity: int,
        delimiter: str,
        policy: str,
    ) -> Parsed:
        """Parses the rows of ``source`` (a file descriptor or memory) that start in ``span``."""
        if self._native is None:
            return self._pure.parse(source, size, span, outs, at, capacity, delimiter, policy)
        fd, base = (source, 0) if isinstance(source, int) else (-1, _address(source))
        rows, lines, after, reasons, bad, fault = self._native.parse(
            fd, base, size, *span, [0 if o is None else o.ctypes.data for o in outs], at, capacity,
            delimiter, POLICIES.index(policy), threads(),
        )  # fmt: skip
        malformed = tuple(
            Malformed(line, column, reason, text.decode("utf-8", "replace"))
            for line, column, reason, text in bad
        )
        return Parsed(rows, lines, after, tuple(reasons), malformed, fault)

    def apply(self, arrays: Sequence[tuple[int, Any, Buffer]]) -> list[list[tuple[int, int]]]:
        """Runs the chains over (column index, Arrow array, output); returns malformed rows."""
        if self._native is None:
            return [self._pure.apply(*item) for item in arrays]
        described = [_describe(*item) for item in arrays]
        bad: list[list[tuple[int, int]]] = self._native.apply(described, threads())
        return bad

    def row_group(self, fd: int, rows: int, chunks: Sequence[tuple[Any, ...]]) -> RowGroup:
        """Chunks are (column, source, nullable, first byte, byte behind it, decompressor)."""
        return RowGroup(_compiled().EtlRowGroup(self._native, fd, rows, list(chunks)))


@dataclass(frozen=True, slots=True)
class ChunkMeta:
    """What a Parquet footer says of a column chunk; -1 stands for what it does not say."""

    type: int
    codec: int
    values: int
    unpacked_bytes: int
    size_bytes: int
    data_page: int
    dictionary_page: int
    encodings: int  # bit k: encoding k is used
    elsewhere: bool  # in another file, or encrypted


def parquet_groups(footer: bytes) -> list[tuple[int, list[ChunkMeta]]]:
    """Rows and column chunks of each row group; none without the native library.

    pyarrow would do, but where a damaged footer has an unknown codec or a wrong histogram, asking
    it for a column ends the process.
    """
    if not native():
        return []
    try:
        groups = _compiled().etl_parquet_footer(footer)
    except RuntimeError:
        return []
    return [(rows, [ChunkMeta(*chunk) for chunk in chunks]) for rows, chunks in groups]


def make_vocabulary(bound: int, max_keys: int) -> Vocabulary:
    """An empty vocabulary: direct below ``bound``, hashed when it is 0."""
    if native():
        made: Vocabulary = _compiled().EtlVocabulary(bound, max_keys)
        return made
    return pure.PureVocabulary(max_keys)


def run_vocabularies(tasks: Sequence[Task]) -> list[int]:
    """Runs every task, columns in parallel; returns unseen values of each map task."""
    if native():
        work = [
            (task.vocabulary, task.mode, task.values.ctypes.data, task.values.dtype.itemsize == 8,
             task.out.ctypes.data, len(task.values), task.base, task.oov)
            for task in tasks
        ]  # fmt: skip
        unseen: list[int] = _compiled().etl_vocabularies(work, threads())
        return unseen
    return [pure.run_task(task) for task in tasks]


# Arrow type -> Parquet's physical type (kernels/etl_parquet_write.hpp).
_PHYSICAL = {"int32": 1, "int64": 2, "float": 4}


def encode_parquet(batch: Any, spare: Any = None) -> Any:
    """The batch as a Parquet file in memory; None if a column is not plain numbers.

    ``spare`` is an earlier result that is no longer needed: its memory is used again.
    """
    columns = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        kind = str(array.type)
        if kind not in _PHYSICAL or array.null_count or not native():
            return None
        values = array.buffers()[1].address + array.offset * array.type.bit_width // 8
        columns.append((name, _PHYSICAL[kind], values))
    file = spare or _compiled().EtlParquetFile()
    file.encode(columns, batch.num_rows, f"temper version {__version__}", threads())
    return file


def _address(memory: memoryview) -> int:
    return int(np.frombuffer(memory, dtype=np.uint8).ctypes.data)


# Arrow type -> the kernels' source code (kernels/etl_arrays.hpp).
SOURCES = {
    "int8": 0, "int16": 1, "int32": 2, "int64": 3, "uint8": 4, "uint16": 5, "uint32": 6,
    "uint64": 7, "float": 8, "double": 9, "string": 10, "binary": 10, "large_string": 11,
    "large_binary": 11,
}  # fmt: skip
READABLE = frozenset(SOURCES)


def _describe(column: int, array: Any, out: Buffer) -> tuple[int, ...]:
    buffers = array.buffers()
    validity = buffers[0].address if buffers[0] is not None and array.null_count else 0
    kind = SOURCES[str(array.type)]
    text = kind >= SOURCES["string"]
    values = buffers[2] if text else buffers[1]
    offsets = buffers[1].address if text and buffers[1] is not None else 0
    return (
        column, kind, 0 if values is None else values.address, offsets, validity, array.offset,
        len(array), out.ctypes.data,
    )  # fmt: skip
