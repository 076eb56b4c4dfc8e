"""NumPy values and names as Arrow, and Arrow tables as files.

``pyarrow.array``, ``pyarrow.table`` and ``pyarrow.feather`` look for pandas first, and importing it
takes longer than a quarter of a gigabyte of text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def numbers(values: Any) -> Any:
    """An Arrow array over the values of a NumPy array; nothing is copied."""
    import pyarrow as pa

    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], 0)


def strings(words: Sequence[str]) -> Any:
    """Words as an Arrow array."""
    import pyarrow as pa

    encoded = [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.StringArray.from_buffers(len(encoded), *buffers)


def write_file(path: Path, table: Any, compression: str | None) -> None:
    """An Arrow file, as ``pyarrow.feather`` writes it."""
    import pyarrow as pa

    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=1 << 16)
