"""Preprocessing against Polars, side by side in one run; exits with 1 if a bar is missed.

    python benchmarks/etl.py [--rows 4000000] [--modulus 100000] [--repeats 3] [--folder DIR]

Both sides do the whole pipeline on the same synthetic Criteo-like files: parse, fill missing,
Neg2Zero, log1p in float32, hexadecimal to integer, modulus, identifiers in order of appearance.
Files are what each side writes fastest: ours packed, Polars' the better of lz4 and no compression.
Each run is a process of its own, so that peak memory is its own; sides alternate and a side's
time is its best. Checksums over every value show that both gave the same output. Measured times;
CPU seconds count both cores and are steadier than seconds on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

DENSE = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]
NAMES = ["label", *DENSE, *CATEGORIES]
MEMORY_BAR_GB = 2.0
# input, sink, how many times as fast as Polars
CASES = (
    ("tsv", "memory", 4.0),
    ("tsv", "file", 4.0),
    ("parquet", "memory", 1.5),
    ("parquet", "file", 1.5),
)


@dataclass(frozen=True)
class Row:
    source: str
    sink: str
    temper_s: float
    polars_s: float
    speedup: float
    bar: float
    temper_gbps: float
    temper_million_rows_s: float
    temper_cpu_s: float
    polars_cpu_s: float
    temper_peak_gb: float
    polars_peak_gb: float
    temper_file_mb: float
    polars_file_mb: float
    polars_kind: str
    same_output: bool

    @property
    def met(self) -> bool:
        memory = self.sink == "memory" or self.temper_peak_gb < MEMORY_BAR_GB
        return self.speedup >= self.bar and memory and self.same_output


def checksum(columns: dict[str, np.ndarray], first_row: int, sums: dict[str, int]) -> None:
    """Adds position-weighted sums of the values' bits, modulo 2^64."""
    for name, values in columns.items():
        bits = values.view(np.uint32) if values.dtype.itemsize == 4 else values.view(np.uint64)
        weights = 2 * np.arange(first_row, first_row + len(bits), dtype=np.uint64) + 1
        total = int((bits.astype(np.uint64) * weights).sum(dtype=np.uint64))
        sums[name] = (sums.get(name, 0) + total) % 2**64


def run_temper(path: str, sink: str, modulus: int, out: str) -> tuple[float, Any]:
    # Imports are not timed on either side.
    import pyarrow.feather
    import pyarrow.parquet  # noqa: F401

    from temper import etl

    started = time.perf_counter()
    pipeline = etl.criteo_pipeline(modulus)
    if sink == "file":
        pipeline.run(path, out)
        return time.perf_counter() - started, None
    batches = list(pipeline.fit_transform(path))
    return time.perf_counter() - started, batches


def run_polars(
    path: str, sink: str, modulus: int, out: str, compression: str = "lz4"
) -> tuple[float, Any]:
    import polars as pl

    types = {"label": pl.Int32, **dict.fromkeys(DENSE, pl.Int32)}
    types |= dict.fromkeys(CATEGORIES, pl.String)
    started = time.perf_counter()
    if path.endswith(".tsv"):
        frame = pl.scan_csv(path, separator="\t", has_header=False, schema=types, quote_char=None)
    else:
        frame = pl.scan_parquet(path)
    codes = pl.col(CATEGORIES).str.to_integer(base=16, dtype=pl.Int64).fill_null(0) % modulus
    done = frame.select(
        pl.col("label").fill_null(0),
        pl.col(DENSE).fill_null(0).clip(0).cast(pl.Float32).cast(pl.Float64).log1p()
        .cast(pl.Float32),
        codes.cast(pl.Int32),
    ).collect(engine="streaming")  # fmt: skip
    # The fastest way found in Polars: a table addressed by value, filled in order of appearance.
    mapped = []
    for name in CATEGORIES:
        values = done[name]
        words = values.unique(maintain_order=True)
        ids = pl.int_range(1, len(words) + 1, dtype=pl.Int32, eager=True)
        table = pl.zeros(modulus, dtype=pl.Int32, eager=True).scatter(words, ids)
        mapped.append(table.gather(values).alias(name))
    done = done.with_columns(mapped)
    if sink == "file":
        done.write_parquet(out, compression=compression, statistics=False)
    return time.perf_counter() - started, done


def child(side: str, path: str, sink: str, modulus: int) -> None:
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        out = os.path.join(folder, "out")
        runner = SIDES[side]
        before = time.process_time()
        seconds, made = runner(path, sink, modulus, out)
        cpu_s = time.process_time() - before
        peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        sums: dict[str, int] = {}
        rows = size = 0
        if sink == "file":
            from pyarrow import parquet

            parts = sorted(Path(out).glob("part-*")) if side == "temper" else [Path(out)]
            size = sum(part.stat().st_size for part in parts)
            made = (batch for part in parts for batch in parquet.ParquetFile(part).iter_batches())
        elif side != "temper":
            made = made.to_arrow().to_batches()
        for batch in made:
            columns = {name: batch.column(name).to_numpy() for name in NAMES}
            checksum(columns, rows, sums)
            rows += batch.num_rows
    print(json.dumps({"side": side, "seconds": seconds, "cpu_s": cpu_s, "rows": rows,
                      "peak_gb": peak_gb, "file_mb": size / 1e6, "sums": sums}))  # fmt: skip


SIDES: dict[str, Callable[..., tuple[float, Any]]] = {
    "temper": run_temper,
    "polars lz4": run_polars,
    "polars uncompressed": partial(run_polars, compression="uncompressed"),
}


def measure(side: str, path: Path, sink: str, modulus: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--child", side, str(path), sink, str(modulus)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{side} failed on {path}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(path: Path, sink: str, bar: float, modulus: int, repeats: int) -> Row:
    best: dict[str, dict[str, Any]] = {}
    for _ in range(repeats):
        for side in SIDES if sink == "file" else list(SIDES)[:2]:
            found = measure(side, path, sink, modulus)
            whose = side.split()[0]
            if whose not in best or found["seconds"] < best[whose]["seconds"]:
                best[whose] = found
    ours, theirs = best["temper"], best["polars"]
    return Row(
        path.suffix[1:], sink, ours["seconds"], theirs["seconds"],
        theirs["seconds"] / ours["seconds"], bar, path.stat().st_size / ours["seconds"] / 1e9,
        ours["rows"] / ours["seconds"] / 1e6, ours["cpu_s"], theirs["cpu_s"], ours["peak_gb"],
        theirs["peak_gb"], ours["file_mb"], theirs["file_mb"], theirs["side"],
        ours["sums"] == theirs["sums"],
    )  # fmt: skip


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        side, path, sink, modulus = sys.argv[2:6]
        child(side, path, sink, int(modulus))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=4_000_000, help="4 million are 1 GB of TSV")
    parser.add_argument("--modulus", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", help="where files are made and kept; default: temporary")
    parser.add_argument("--case", help="only this one, e.g. tsv-file")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    from temper.etl.synthetic import write_criteo_like

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(given.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        for source, sink, bar in CASES:
            if given.case not in (None, f"{source}-{sink}"):
                continue
            path = folder / f"criteo_{given.rows}.{source}"
            if not path.exists():
                write_criteo_like(path, given.rows)
            rows.append(compare(path, sink, bar, given.modulus, given.repeats))
            if not given.json:
                show(rows[-1], first=len(rows) == 1)
    if given.json:
        print(json.dumps([{**asdict(row), "met": row.met} for row in rows], indent=2))
    return 0 if all(row.met for row in rows) else 1


def show(row: Row, *, first: bool) -> None:
    if first:
        print("input    to      temper     polars    faster   bar   temper             "
              "temper / polars: CPU, memory, file            same output")  # fmt: skip
    files = f"{row.temper_file_mb:.0f} / {row.polars_file_mb:.0f} MB ({row.polars_kind})"
    print(
        f"{row.source:<8} {row.sink:<6} {row.temper_s:6.2f} s  {row.polars_s:7.2f} s  "
        f"{row.speedup:6.2f}x {row.bar:4.1f}x  {row.temper_gbps:.2f} GB/s "
        f"{row.temper_million_rows_s:5.2f} Mrow/s  {row.temper_cpu_s:.2f} / "
        f"{row.polars_cpu_s:.2f} s  {row.temper_peak_gb:.2f} / {row.polars_peak_gb:.2f} GB  "
        f"{files if row.temper_file_mb else '':<38} {'yes' if row.same_output else 'NO'}"
        f"{'' if row.met else '  MISSED'}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
