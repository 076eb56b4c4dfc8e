"""Synthetic click logs in Criteo's layout, for benchmarks, examples and tests."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from temper.etl.schema import CRITEO

_CHUNK_ROWS = 250_000


def write_criteo_like(path: str | os.PathLike[str], rows: int, *, seed: int = 0) -> None:
    """Writes ``rows`` rows of TSV, or Parquet when the name ends so; the same for the same seed.

    Counts are log-normal with a few negatives, 10% missing; each category draws skewed from its
    own 10 to 1,000,000 hashes, 3% missing. The hashes are the same for every seed, as those of
    two days of one site mostly are.
    """
    import pyarrow as pa
    from pyarrow import csv, parquet

    columnar = str(path).endswith(".parquet")
    rng, hashes = np.random.default_rng(seed), np.random.default_rng(0)
    # A few rows need no million hashes to draw from.
    largest = min(6.0, np.log10(max(rows, 100)))
    pools = [
        pa.array([f"{value:08x}" for value in hashes.integers(0, 2**32, int(10**exponent))])
        for exponent in hashes.uniform(1, largest, 26)
    ]
    schema = pa.schema(
        [("label", pa.int32())]
        + [(name, pa.int32()) for name in CRITEO.role("dense")]
        + [(name, pa.string()) for name in CRITEO.role("category")]
    )
    options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    writer: Any
    if columnar:
        writer = parquet.ParquetWriter(path, schema, compression="snappy")
    else:
        writer = csv.CSVWriter(path, schema, write_options=options)
    with writer:
        for start in range(0, rows, _CHUNK_ROWS):
            count = min(_CHUNK_ROWS, rows - start)
            writer.write_table(pa.Table.from_arrays(_chunk(rng, count, pools), schema=schema))
        if rows == 0 and columnar:
            writer.write_table(schema.empty_table())


def _chunk(rng: np.random.Generator, count: int, pools: list[Any]) -> list[Any]:
    import pyarrow as pa

    arrays = [pa.array((rng.random(count) < 0.25).astype(np.int32))]
    for index in range(13):
        values = np.floor(rng.lognormal(1.0 + 0.4 * index, 1.5, count))
        if index % 4 == 1:
            values -= 2
        values = np.minimum(values, 2**31 - 1).astype(np.int32)
        arrays.append(pa.array(values, mask=rng.random(count) < 0.1))
    for pool in pools:
        chosen = (len(pool) * rng.random(count) ** 3).astype(np.int32)
        arrays.append(pool.take(pa.array(chosen, mask=rng.random(count) < 0.03)))
    return arrays
