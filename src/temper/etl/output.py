"""Resumable output: part files, then a manifest that says which of them count."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from temper.errors import BadFileError, TemperError, UsageError
from temper.etl import arrow, vocabulary
from temper.etl.execute import Counters, Position
from temper.etl.packed import Packer
from temper.files import check_writable, only_one

MANIFEST = "_temper_etl.json"
_LOCK = "_temper_etl.lock"
VOCABULARY = "_vocabulary.arrow"
# The first is the default. "packed" is what the kernels write: dictionaries and packed bits.
COMPRESSIONS = {
    "parquet": ("packed", "none", "lz4", "zstd", "snappy"),
    "arrow": ("lz4", "zstd", "none"),
}
_VERSION = 1


@dataclass
class Manifest:
    """The state of one output folder; what it lists is complete, anything else is a leftover."""

    pipeline: str
    inputs: list[dict[str, Any]]
    position: Position = field(default_factory=Position)
    parts: list[dict[str, Any]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)  # files with the keys each part added
    counters: Counters = field(default_factory=Counters)
    splits: list[int] = field(default_factory=list)  # those that a cluster has finished
    fitted: bool = False
    done: bool = False


@dataclass(frozen=True)
class Encoded:
    """One part's rows and what writes them to a path, from a copy or from the batch itself."""

    rows: int
    write: Callable[[Path], None]
    copied: bool


class Output:
    """A folder of part files. Every file is written beside and renamed, the manifest last."""

    def __init__(
        self, folder: str | os.PathLike[str], kind: str, compression: str | None = None
    ) -> None:
        if kind not in COMPRESSIONS:
            raise UsageError(f"no output format {kind!r}", allowed=list(COMPRESSIONS))
        compression = compression or COMPRESSIONS[kind][0]
        if compression not in COMPRESSIONS[kind]:
            raise UsageError(
                f"{kind} files have no compression {compression!r}", allowed=COMPRESSIONS[kind]
            )
        self.folder = Path(folder)
        self.kind = kind
        self.compression = compression
        self._packer = Packer()

    def alone(self) -> AbstractContextManager[None]:
        """The folder for this run only; two runs into one folder would mix their parts."""
        check_writable(self.folder)
        busy = TemperError(
            f"another run writes to {self.folder}", try_=["wait for it", "another folder"]
        )
        return only_one(self.folder / _LOCK, busy)

    @property
    def settings(self) -> list[str]:
        """What of it decides the files' bytes."""
        return [self.kind, self.compression]

    def prepare(self, pipeline: str, inputs: list[dict[str, Any]], *, resume: bool) -> Manifest:
        """The manifest to continue from; a folder of another run is an error."""
        path = self.folder / MANIFEST
        manifest = Manifest(pipeline, inputs)
        if path.exists():
            found = self._read(path)
            if not resume:
                raise UsageError(
                    f"{self.folder} holds the output of an earlier run",
                    try_=["--resume to continue it", "another folder"],
                )
            if found.pipeline != pipeline or found.inputs != inputs:
                what = (
                    "pipeline (its vocabularies, the format and the compression belong to it)"
                    if found.pipeline != pipeline
                    else "input files"
                )
                raise UsageError(
                    f"{self.folder} cannot be continued: the {what} changed since",
                    try_=f"another folder, or remove {self.folder}",
                )
            manifest = found
        elif any(self.folder.glob("part-*")):
            raise UsageError(
                f"{self.folder} holds part files but no {MANIFEST}", try_="another folder"
            )
        listed = {part["file"] for part in manifest.parts} | set(manifest.words)
        for pattern in ("part-*", "_words-*", "*.tmp"):
            for leftover in self.folder.glob(pattern):
                if leftover.name not in listed:
                    leftover.unlink()
        return manifest

    def encode(self, batch: Any) -> Encoded:
        """The batch ready to be written: packed columns are encoded now, on all cores."""
        write = self._packer.encode(batch) if self.compression == "packed" else None
        copied = write is not None
        return Encoded(batch.num_rows, write or partial(self._write_arrow, batch), copied)

    def write_part(self, manifest: Manifest, encoded: Encoded) -> None:
        """One part file; it counts once ``commit`` has listed it."""
        name = f"part-{len(manifest.parts):05d}.{self.kind}"
        self.write_file(name, encoded)
        manifest.parts.append({"file": name, "rows": encoded.rows})

    def write_file(self, name: str, encoded: Encoded) -> None:
        """One batch as one file, written beside and renamed."""
        beside = self.folder / f"{name}.tmp"
        try:
            encoded.write(beside)
            os.replace(beside, self.folder / name)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise

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
        vocabulary.save(self.folder / name, words)
        manifest.words.append(name)

    def commit(self, manifest: Manifest) -> None:
        beside = self.folder / f"{MANIFEST}.tmp"
        beside.write_text(
            json.dumps({"version": _VERSION, **asdict(manifest)}, indent=1), encoding="utf-8"
        )
        os.replace(beside, self.folder / MANIFEST)

    def finish(self, manifest: Manifest) -> None:
        """Marks the run complete and removes what only a continuation would need."""
        words, manifest.words, manifest.done = manifest.words, [], True
        self.commit(manifest)
        for name in words:
            (self.folder / name).unlink(missing_ok=True)

    def _read(self, path: Path) -> Manifest:
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            if value.pop("version") != _VERSION:
                raise BadFileError(f"{path} is of another version")
            value["position"] = Position(**value["position"])
            value["counters"] = Counters(**value["counters"])
            return Manifest(**value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadFileError(
                f"{path} is damaged: {error}", try_=f"remove {path.parent} and start over"
            ) from None


def fingerprint(parts: Sequence[Any]) -> str:
    """A short name of everything that decides the output."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
