"""Packed Parquet files: dictionaries and bit packing by the kernels instead of a compressor.

Every reader takes them: data pages of version 1, dictionary or plain encoding, no codec. Columns
other than plain numbers, and hosts without the native library, take pyarrow's writer.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from temper.etl import kernel


class Packer:
    """Encodes batches; the memory of a written file serves the next."""

    def __init__(self) -> None:
        self._spare: list[Any] = []

    def encode(self, batch: Any) -> partial[None] | None:
        """What writes the encoded batch to a path; None where a column is not plain numbers."""
        file = kernel.encode_parquet(batch, self._spare.pop() if self._spare else None)
        return None if file is None else partial(self._write, file)

    def _write(self, file: Any, path: Path) -> None:
        with path.open("wb") as to:
            to.writelines(file.pieces())
        self._spare.append(file)
