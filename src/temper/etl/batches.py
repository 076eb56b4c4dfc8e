"""Columns made and read as Arrow arrays: constants, expansions, dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from temper.etl import arrow
from temper.etl.operators import EmbeddingLookup, OneHot
from temper.etl.plan import ColumnPlan

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"  # what Hive calls the folder of a missing value


def partition_word(word: str) -> str | None:
    """The text that a folder's name stands for; None where the value is missing."""
    return None if word in ("", _HIVE_NULL) else word


def with_constant(batch: Any, name: str, word: str) -> Any:
    """The batch with a column that has one value, as a dictionary of one word."""
    import pyarrow as pa

    index = arrow.numbers(np.zeros(batch.num_rows, dtype=np.int32))
    words = pa.array([partition_word(word)], pa.string())
    column = pa.DictionaryArray.from_arrays(index, words)
    return pa.RecordBatch.from_arrays([*batch.columns, column], names=[*batch.schema.names, name])


def expand(plan: ColumnPlan, ids: Any) -> Any:
    """OneHot and EmbeddingLookup: a fixed-size list a row."""
    import pyarrow as pa

    if isinstance(plan.expand, OneHot):
        inside = (ids >= 0) & (ids < plan.expand.size)
        flat = np.zeros((len(ids), plan.expand.size), dtype=np.uint8)
        flat[np.flatnonzero(inside), ids[inside]] = 1
    else:
        assert isinstance(plan.expand, EmbeddingLookup)
        table = plan.expand.table
        inside = (ids >= 0) & (ids < len(table))
        flat = table[np.where(inside, ids, 0)]
        flat[~inside] = 0
    return pa.FixedSizeListArray.from_arrays(arrow.numbers(flat.reshape(-1)), flat.shape[1])


def gather(indices: Any, small: Any, out: Any, wrong: Mapping[int, int]) -> list[tuple[int, int]]:
    """Rows of a dictionary-encoded column from its chain's results; returns malformed rows."""
    if indices.null_count:
        indices = indices.fill_null(len(small) - 1)
    places = indices.to_numpy(zero_copy_only=False)
    np.take(small, places, out=out, mode="clip")
    if not wrong:
        return []
    rows = np.flatnonzero(np.isin(places, list(wrong)))
    return [(int(row), wrong[int(places[row])]) for row in rows]
