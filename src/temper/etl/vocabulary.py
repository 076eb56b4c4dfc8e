"""Vocabularies as data: saved and loaded as one Arrow file, selected by frequency and size."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from temper.errors import BadFileError
from temper.etl import arrow, kernel_types
from temper.etl.operators import VocabGen
from temper.files import replacing_path

_FORMAT = b"temper-vocabulary"
_VERSION = b"1"


@dataclass(frozen=True)
class Words:
    """The kept keys of one column in order of identifier, and how often each was seen.

    Counts are -1 where they were not counted: a single pass that keeps everything need not.
    """

    keys: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)


def snapshot(vocabulary: kernel_types.Vocabulary, *, counted: bool, start: int = 0) -> Words:
    """The keys from number ``start`` on."""
    keys = np.empty(len(vocabulary) - start, dtype=np.int64)
    vocabulary.keys(keys, start)
    counts = np.full(len(keys), -1, dtype=np.int64)
    if counted:
        vocabulary.counts(counts)
    return Words(keys, counts)


def select(words: Words, gen: VocabGen) -> Words:
    """What a VocabGen keeps: floor, bound by frequency, then the order of identifiers."""
    kept = np.flatnonzero(words.counts >= gen.min_count)
    by_count = kept[np.argsort(-words.counts[kept], kind="stable")]
    if gen.max_size is not None:
        by_count = by_count[: gen.max_size]
    order = by_count if gen.order == "frequency" else np.sort(by_count)
    return Words(words.keys[order], words.counts[order])


def one_pass(gen: VocabGen, key_bound: int) -> bool:
    """Whether identifiers can be given while reading, because everything seen is kept."""
    unbounded = gen.max_size is None or 0 < key_bound <= gen.max_size
    return gen.min_count == 1 and unbounded and gen.order == "appearance"


def to_table(vocabularies: Mapping[str, Words]) -> Any:
    """One Arrow table: column, key, count, in order of identifier."""
    import pyarrow as pa

    names = list(vocabularies)
    sizes = [len(vocabularies[name]) for name in names]
    index = np.repeat(np.arange(len(names), dtype=np.int32), sizes)
    words = list(vocabularies.values())
    empty = np.empty(0, dtype=np.int64)
    arrays = [
        pa.DictionaryArray.from_arrays(arrow.numbers(index), arrow.strings(names)),
        arrow.numbers(np.concatenate([empty, *(item.keys for item in words)])),
        arrow.numbers(np.concatenate([empty, *(item.counts for item in words)])),
    ]
    table = pa.Table.from_arrays(arrays, names=["column", "key", "count"])
    return table.replace_schema_metadata({_FORMAT: _VERSION, b"columns": "\n".join(names).encode()})


def save(path: str | os.PathLike[str], vocabularies: Mapping[str, Words]) -> None:
    """One Arrow file, there whole or not at all."""
    with replacing_path(Path(path)) as beside:
        write(beside, vocabularies)


def write(path: Path, vocabularies: Mapping[str, Words]) -> None:
    """The file's bytes, straight to that path."""
    arrow.write_file(path, to_table(vocabularies), None)


def load(path: str | os.PathLike[str]) -> dict[str, Words]:
    """Reads what ``save`` wrote; anything else is an error."""
    import pyarrow as pa

    if not Path(path).is_file():
        raise BadFileError(f"no vocabulary file {path}")
    try:
        with pa.OSFile(str(path), "rb") as source:
            table = pa.ipc.open_file(source).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise BadFileError(f"{path} is not a vocabulary file: {error}") from None
    metadata = table.schema.metadata or {}
    if metadata.get(_FORMAT) != _VERSION:
        raise BadFileError(
            f"{path} is not a vocabulary file of version {_VERSION.decode()}",
            try_="'temper etl' with --save-vocabulary writes one",
        )
    names = [name for name in metadata[b"columns"].decode().split("\n") if name]
    column = table["column"].combine_chunks()
    index = column.indices.to_numpy(zero_copy_only=False)
    keys, counts = table["key"].to_numpy(), table["count"].to_numpy()
    edges = np.searchsorted(index, np.arange(len(names) + 1))
    found = {}
    for number, name in enumerate(names):
        rows = slice(edges[number], edges[number + 1])
        found[name] = Words(keys[rows].astype(np.int64), counts[rows].astype(np.int64))
        if len(np.unique(found[name].keys)) != len(found[name]):
            raise BadFileError(f"{path} names a key of column {name!r} twice")
    if len(column) and (column.dictionary.to_pylist() != names or np.any(np.diff(index) < 0)):
        raise BadFileError(f"{path} is a vocabulary file whose columns are out of order")
    return found
