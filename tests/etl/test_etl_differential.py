"""Random schemas, pipelines, files and damage: the same values as the same steps in Polars."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pyarrow import parquet

from temper import etl

SEEDS = range(24)


def drawn_schema(draw: random.Random) -> etl.Schema:
    columns = []
    for number in range(draw.randint(1, 4)):
        kind = draw.choice(["int", "int", "float"])
        columns.append(etl.Column(f"d{number}", kind, missing=draw.choice([0, 7, -3])))
    columns += [etl.Column(f"c{n}", "hex", "category", missing=draw.choice([0, 5]))
                for n in range(draw.randint(0, 3))]  # fmt: skip
    draw.shuffle(columns)
    return etl.Schema("drawn", tuple(columns))


def drawn_frame(schema: etl.Schema, rows: int, draw: random.Random) -> pl.DataFrame:
    """Values as a source has them: numbers that text holds exactly, hashes as text, gaps."""
    made: dict[str, list[Any]] = {}
    for column in schema.columns:
        gaps = draw.choice([0.0, 0.1, 0.6])
        spread = draw.choice([3, 50, 2**31])
        distinct = [f"{draw.getrandbits(draw.choice([8, 32, 64])):x}" for _ in range(40)]

        def value(kind: str, spread: int = spread, distinct: list[str] = distinct) -> Any:
            if kind == "hex":
                word = draw.choice(distinct)
                return word.upper() if draw.random() < 0.2 else word
            whole = draw.randint(-spread, spread)
            return whole if kind == "int" else whole / 8

        made[column.name] = [None if draw.random() < gaps else value(column.kind)
                             for _ in range(rows)]  # fmt: skip
    types = {"int": pl.Int64, "float": pl.Float64, "hex": pl.String}
    return pl.DataFrame(made, schema={c.name: types[c.kind] for c in schema.columns})


def drawn_operators(schema: etl.Schema, draw: random.Random) -> list[etl.Operator]:
    found: list[etl.Operator] = []
    if draw.random() < 0.6:
        found.append(etl.Neg2Zero())
    if draw.random() < 0.4:
        found.append(etl.Clip(low=draw.choice([-2.0, 0.0]), high=draw.choice([1.0, 40.0])))
    last = draw.choice(["log", "buckets", ""])
    if last == "log":  # of no number below zero
        found += [etl.Neg2Zero(), etl.Logarithm("log1p")]
    elif last:
        found.append(etl.Bucketize((-1.5, 0.0, 2.0, 10.0)))
    if schema.role("category"):
        found.append(etl.Hex2Int())
        if draw.random() < 0.7:
            found.append(etl.Modulus(draw.choice([2, 17, 1000, 100_003])))
        if draw.random() < 0.7:
            found += [
                etl.VocabGen(draw.choice([1, 1, 2, 3]), draw.choice([None, 3, 12]),
                             draw.choice(["appearance", "frequency"])),
                etl.VocabMap(draw.choice([0, -1])),
            ]  # fmt: skip
    return found


def expected(
    frame: pl.DataFrame, schema: etl.Schema, operators: list[etl.Operator]
) -> dict[str, np.ndarray]:
    return {
        column.name: _category(frame[column.name], column, operators)
        if column.role == "category"
        else _dense(frame[column.name], column, operators)
        for column in schema.columns
    }


def _dense(values: pl.Series, column: etl.Column, operators: list[etl.Operator]) -> np.ndarray:
    x = values.fill_null(column.missing).cast(pl.Float64)
    for op in operators:
        if isinstance(op, etl.Neg2Zero):
            x = x.clip(0, None)
        elif isinstance(op, etl.Clip):
            x = x.clip(op.low, op.high)
        elif isinstance(op, etl.Logarithm):
            x = x.cast(pl.Float32).cast(pl.Float64).log1p().cast(pl.Float32).cast(pl.Float64)
        elif isinstance(op, etl.Bucketize):
            x = sum((x > edge).cast(pl.Float64) for edge in op.edges)  # type: ignore[assignment]
    return x.to_numpy()


def _category(values: pl.Series, column: etl.Column, operators: list[etl.Operator]) -> np.ndarray:
    keys = values.str.to_lowercase().str.to_integer(base=16, dtype=pl.UInt64)
    keys = keys.fill_null(column.missing)
    gen: etl.VocabGen | None = None
    for op in operators:
        if isinstance(op, etl.Modulus):
            keys = keys % op.divisor
        elif isinstance(op, etl.VocabGen):
            gen = op
        elif isinstance(op, etl.VocabMap) and gen is not None:
            counted = keys.rename("key").to_frame().group_by("key", maintain_order=True).len()
            kept = counted.with_row_index("first").filter(pl.col("len") >= gen.min_count)
            kept = kept.sort("len", descending=True, maintain_order=True)
            if gen.max_size is not None:
                kept = kept.head(gen.max_size)
            if gen.order == "appearance":
                kept = kept.sort("first")
            words = kept.select("key").with_row_index("id", op.oov + 1)
            joined = (
                keys.rename("key")
                .to_frame()
                .join(words, on="key", how="left", maintain_order="left")
            )
            return joined["id"].cast(pl.Int64).fill_null(op.oov).to_numpy()
    return keys.to_numpy()


def written(frame: pl.DataFrame, folder: Path, draw: random.Random) -> tuple[Path, dict[str, str]]:
    if draw.random() < 0.5:
        path = folder / "rows.parquet"
        parquet.write_table(
            frame.to_arrow(), path, row_group_size=draw.choice([7, 100, 10_000]),
            compression=draw.choice(["none", "snappy", "zstd"]), use_dictionary=draw.random() < 0.5,
        )  # fmt: skip
        return path, {}
    delimiter = draw.choice(["\t", ",", ";"])
    path = folder / "rows.txt"
    frame.write_csv(path, separator=delimiter, include_header=False, float_precision=3)
    return path, {"delimiter": delimiter}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_pipeline_gives_what_polars_gives(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    schema = drawn_schema(draw)
    # A single column cannot have gaps in text: its empty lines are no rows.
    frame = drawn_frame(schema, draw.choice([1, 33, 500, 1500]), draw)
    operators = drawn_operators(schema, draw)
    if len(schema.columns) == 1:
        frame = frame.drop_nulls()
    path, options = written(frame, tmp_path, draw)
    pipeline = etl.Pipeline(operators, schema, rows_per_part=draw.choice([10, 400, 1 << 20]))
    found = pipeline.table(path, **options)
    assert found.column_names == list(schema.names)
    for name, values in expected(frame, schema, operators).items():
        made = found[name].to_numpy()
        assert len(made) == len(values), (name, operators)
        wanted = values.astype(made.dtype)
        assert np.array_equal(made, wanted), (name, operators, made[:8], wanted[:8])
