"""Resumable output: part files, then a manifest that says which of them count."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from temper.errors import BadFileError, UsageError
from temper.etl import arrow, vocabulary
from temper.etl.execute import Counters, Position
from temper.etl.packed import Packer
from temper.etl.stores import open_store, read_json
from temper.files import UNFINISHED

MANIFEST = "_temper_etl.json"
VOCABULARY = "_vocabulary.arrow"
# The first is the default. "packed" is what the kernels write: dictionaries and packed bits.
COMPRESSIONS = {
    "parquet": ("packed", "none", "lz4", "zstd", "snappy"),
    "arrow": ("lz4", "zstd", "none"),
}
_VERSION = 2
# More folders than this in one part is a column that nobody partitions by.
MOST_PARTITIONS = 1000


@dataclass
class Manifest:
    """The state of one output folder; what it lists is complete, anything else is a leftover."""

    pipeline: str
    inputs: list[dict[str, Any]]
    position: Position = field(default_factory=Position)
    parts: list[dict[str, Any]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)  # files with the keys each part added
    counters: Counters = field(default_factory=Counters)
    written: int = 0  # parts so far; a partitioned one has several files
    splits: list[int] = field(default_factory=list)  # those that a cluster has finished
    fitted: bool = False
    done: bool = False


@dataclass(frozen=True)
class FilePiece:
    """Rows that go into one file: its folder below the output, and what writes them."""

    folder: str
    rows: int
    write: Callable[[Path], None]


@dataclass(frozen=True)
class Encoded:
    """One part's rows, ready to be written from a copy or from the batch itself."""

    rows: int
    pieces: tuple[FilePiece, ...]
    copied: bool


class Output:
    """A folder of part files. Every file is there whole or not at all, the manifest last.

    With ``partition_by``, a column's values become folders, ``label=1/part-00000.parquet``.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        kind: str,
        compression: str | None = None,
        partition_by: str | None = None,
    ) -> None:
        if kind not in COMPRESSIONS:
            raise UsageError(f"no output format {kind!r}", allowed=list(COMPRESSIONS))
        compression = compression or COMPRESSIONS[kind][0]
        if compression not in COMPRESSIONS[kind]:
            raise UsageError(
                f"{kind} files have no compression {compression!r}", allowed=COMPRESSIONS[kind]
            )
        self.store = open_store(folder)
        self.kind = kind
        self.compression = compression
        self.partition_by = partition_by
        self._packer = Packer()

    @property
    def settings(self) -> list[str | None]:
        """What of it decides the files' bytes."""
        return [self.kind, self.compression, self.partition_by]

    def prepare(self, pipeline: str, inputs: list[dict[str, Any]], *, resume: bool) -> Manifest:
        """The manifest to continue from; a folder of another run is an error."""
        place, names = self.store.place, self.store.names()
        manifest = Manifest(pipeline, inputs)
        parts = [name for name in names if name.rsplit("/", 1)[-1].startswith("part-")]
        if MANIFEST in names:
            found = self._read()
            if not resume:
                raise UsageError(
                    f"{place} holds the output of an earlier run",
                    try_=["--resume to continue it", "another folder"],
                )
            if found.pipeline != pipeline or found.inputs != inputs:
                what = (
                    "pipeline (its vocabularies, the format and the compression belong to it)"
                    if found.pipeline != pipeline
                    else "input files"
                )
                raise UsageError(
                    f"{place} cannot be continued: the {what} changed since",
                    try_=f"another folder, or remove {place}",
                )
            manifest = found
        elif parts:
            raise UsageError(f"{place} holds part files but no {MANIFEST}", try_="another folder")
        listed = {part["file"] for part in manifest.parts} | set(manifest.words)
        words = [name for name in names if name.startswith("_words-")]
        halves = [name for name in names if name.endswith(UNFINISHED)]
        for leftover in {*parts, *words, *halves} - listed:
            self.store.remove(leftover)
        return manifest

    def encode(self, batch: Any) -> Encoded:
        """The batch ready to be written: packed columns are encoded now, on all cores."""
        pieces, copied = [], True
        for folder, rows in self._partitions(batch):
            packed = self._packer.encode(rows) if self.compression == "packed" else None
            copied = copied and packed is not None
            write = packed or partial(self._write_arrow, rows)
            pieces.append(FilePiece(folder, rows.num_rows, write))
        return Encoded(batch.num_rows, tuple(pieces), copied)

    def _partitions(self, batch: Any) -> Iterator[tuple[str, Any]]:
        """The batch, or its rows by the value of a column, which becomes the folder's name."""
        if self.partition_by is None:
            yield "", batch
            return
        if self.partition_by not in batch.schema.names:
            raise UsageError(
                f"no column {self.partition_by!r} to partition by", allowed=batch.schema.names
            )
        from pyarrow import compute

        column = batch.column(self.partition_by)
        others = [name for name in batch.schema.names if name != self.partition_by]
        values = sorted(compute.unique(column).to_pylist())
        if len(values) > MOST_PARTITIONS:
            raise UsageError(
                f"{self.partition_by!r} has {len(values)} values in one part",
                needs=f"at most {MOST_PARTITIONS} folders",
                try_="a column of few values",
            )
        for value in values:
            yield (
                f"{self.partition_by}={value}/",
                batch.filter(compute.equal(column, value)).select(others),
            )

    def write_part(self, manifest: Manifest, encoded: Encoded) -> None:
        """One part's files; they count once ``commit`` has listed them."""
        number = manifest.written
        manifest.parts += self.write_files(f"part-{number:05d}", encoded)
        manifest.written += 1

    def write_files(self, stem: str, encoded: Encoded) -> list[dict[str, Any]]:
        """A file for each piece, each whole or not at all; returns what the manifest lists."""
        listed = []
        for piece in encoded.pieces:
            name = f"{piece.folder}{stem}.{self.kind}"
            self.store.put(name, piece.write)
            listed.append({"file": name, "rows": piece.rows})
        return listed

    def _write_arrow(self, batch: Any, path: Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        table = pa.Table.from_batches([batch])
        codec = None if self.compression in ("packed", "none") else self.compression
        if self.kind == "arrow":
            arrow.write_file(path, table, codec)
        else:
            # Columns of hashes and logarithms gain little from dictionaries under a compressor,
            # and nothing from statistics.
            parquet.write_table(
                table, path, compression=codec or "none", write_statistics=False,
                use_dictionary=self.compression == "packed",
            )  # fmt: skip

    def write_words(self, manifest: Manifest, words: Mapping[str, vocabulary.Words]) -> None:
        """The keys that vocabularies gained since the last part."""
        name = f"_words-{len(manifest.words):05d}.arrow"
        self.write_vocabularies(name, words)
        manifest.words.append(name)

    def write_vocabularies(self, name: str, words: Mapping[str, vocabulary.Words]) -> None:
        """Vocabularies as one file of the folder."""
        self.store.put(name, lambda path: vocabulary.write(path, words))

    def read_vocabularies(self, name: str) -> dict[str, vocabulary.Words]:
        """What ``write_vocabularies`` wrote."""
        with self.store.local(name) as path:
            return vocabulary.load(path)

    def commit(self, manifest: Manifest) -> None:
        """From here on the folder continues at this manifest."""
        text = json.dumps({"version": _VERSION, **asdict(manifest)}, indent=1)
        self.store.put(MANIFEST, lambda path: _write_text(path, text))

    def finish(self, manifest: Manifest) -> None:
        """Marks the run complete and removes what only a continuation would need."""
        words, manifest.words, manifest.done = manifest.words, [], True
        self.commit(manifest)
        for name in words:
            self.store.remove(name)

    def _read(self) -> Manifest:
        place = f"{self.store.place}/{MANIFEST}"
        try:
            value = read_json(self.store, MANIFEST)
            if value.pop("version") != _VERSION:
                raise BadFileError(f"{place} is of another version")
            value["position"] = Position(**value["position"])
            value["counters"] = Counters(**value["counters"])
            return Manifest(**value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadFileError(
                f"{place} is damaged: {error}",
                try_=f"remove {self.store.place} and start over",
            ) from None


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def fingerprint(parts: Sequence[Any]) -> str:
    """A short name of everything that decides the output."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
