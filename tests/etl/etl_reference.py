"""The Criteo pipeline written in Polars: the reference that tests compare with."""

from __future__ import annotations

import polars as pl

DENSE = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]
NAMES = ["label", *DENSE, *CATEGORIES]


def read_tsv(path: object) -> pl.DataFrame:
    types = {"label": pl.Int32, **dict.fromkeys(DENSE, pl.Int64)}
    types |= dict.fromkeys(CATEGORIES, pl.String)
    return pl.read_csv(path, separator="\t", has_header=False, new_columns=NAMES,
                       schema_overrides=types, quote_char=None)  # fmt: skip


def stateless(frame: pl.DataFrame, modulus: int, mode: str = "log1p") -> pl.DataFrame:
    x = pl.col(DENSE).fill_null(0).clip(0).cast(pl.Float32)
    # The logarithm in Float64, rounded once, is the correctly rounded float32 result.
    log = x.cast(pl.Float64).log1p() if mode == "log1p" else _log(x)
    codes = pl.col(CATEGORIES).fill_null("0").str.to_integer(base=16, dtype=pl.Int64)
    return frame.select(
        pl.col("label").fill_null(0).cast(pl.Int32),
        log.cast(pl.Float32),
        (codes % modulus).cast(pl.Int32),
    )


def _log(x: pl.Expr) -> pl.Expr:
    return (x + pl.lit(1e-7, pl.Float32)).cast(pl.Float64).log()


def appearance_ids(frame: pl.DataFrame) -> pl.DataFrame:
    """Identifiers from 1 in order of first appearance, column by column."""
    for name in CATEGORIES:
        words = frame.select(pl.col(name).unique(maintain_order=True)).with_row_index("id", 1)
        ids = frame.select(name).join(words, on=name, how="left", maintain_order="left")["id"]
        frame = frame.with_columns(ids.cast(pl.Int32).alias(name))
    return frame
