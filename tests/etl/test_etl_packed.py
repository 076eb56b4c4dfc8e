"""Packed Parquet files: what pyarrow and Polars read back is what was written, to the bit."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from pyarrow import parquet

from temper import etl
from temper.errors import UsageError
from temper.etl import kernel, packed, synthetic
from temper.etl.output import MANIFEST, Output

pytestmark = pytest.mark.skipif(not kernel.native(), reason="the native library is not built")

INT32, INT64 = np.iinfo(np.int32), np.iinfo(np.int64)
PLAIN, DICTIONARY = ("PLAIN",), ("PLAIN", "RLE_DICTIONARY")


def batch(columns: dict[str, Any]) -> pa.RecordBatch:
    arrays = [pa.array(values) for values in columns.values()]
    fields = [
        pa.field(name, array.type, nullable=False)
        for name, array in zip(columns, arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def written(folder: Path, columns: dict[str, Any]) -> Path:
    write = packed.Packer().encode(batch(columns))
    assert write is not None
    write(folder / "x.parquet")
    return folder / "x.parquet"


def same_bits(found: Any, expected: Any) -> bool:
    found, expected = np.asarray(found), np.asarray(expected)
    return bool(found.dtype == expected.dtype and found.tobytes() == expected.tobytes())


def encodings(path: Path) -> dict[str, tuple[str, ...]]:
    group = parquet.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    return {column.path_in_schema: column.encodings for column in columns}


def check(path: Path, columns: dict[str, Any]) -> None:
    by_arrow, by_polars = parquet.read_table(path), pl.read_parquet(path)
    assert by_arrow.schema == batch(columns).schema
    for name, values in columns.items():
        assert same_bits(by_arrow[name].to_numpy(), values)
        assert same_bits(by_polars[name].to_numpy(), values)


@pytest.mark.parametrize("width", range(1, 21))
def test_indices_of_every_width_come_back(tmp_path: Path, width: int) -> None:
    # 9 values fill their range; the range is no multiple of a group of eight.
    rows = np.random.default_rng(width).integers(0, 2**width, 9 * 2**width + 5)
    columns = {"narrow": rows.astype(np.int32), "wide": rows.astype(np.int64) - 2**40}
    path = written(tmp_path, columns)
    check(path, columns)
    assert encodings(path) == {"narrow": DICTIONARY, "wide": DICTIONARY}


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 8, 9, 31, 32, 33, 16383, 16384, 16385, 50_000])
def test_any_number_of_rows_comes_back(tmp_path: Path, rows: int) -> None:
    rng = np.random.default_rng(rows)
    columns = {
        "constant": np.full(rows, -7, dtype=np.int32),
        "few": rng.integers(0, 5, rows).astype(np.float32),
        "many": rng.random(rows, dtype=np.float32),
        "keys": rng.integers(INT64.min, INT64.max, rows),
    }
    path = written(tmp_path, columns)
    check(path, columns)
    assert parquet.ParquetFile(path).metadata.num_rows == rows
    assert pl.scan_parquet(path).select(pl.len()).collect().item() == rows


def test_extreme_values_come_back_to_the_bit(tmp_path: Path) -> None:
    odd_nan = np.array([0x7FC00001, 0xFF800001], dtype=np.uint32).view(np.float32)
    floats = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, *odd_nan], dtype=np.float32)
    columns = {
        "int32": np.resize(np.array([INT32.min, INT32.max, 0, -1], dtype=np.int32), 40),
        "int64": np.resize(np.array([INT64.min, INT64.max, 0, -1]), 40),
        "few": np.resize(floats, 40),
    }
    check(written(tmp_path, columns), columns)
    plain = {"int32": columns["int32"][:4], "int64": columns["int64"][:4], "few": floats[:4]}
    path = written(tmp_path, plain)
    check(path, plain)
    assert set(encodings(path).values()) == {PLAIN}


def test_a_dictionary_is_kept_only_where_it_makes_the_file_smaller(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = 100_000
    late = rng.integers(0, 10, rows)  # a dictionary pays at first and no longer behind
    late[20_000:] = rng.integers(INT32.min, INT32.max, rows - 20_000)
    columns = {
        "sparse": rng.choice(rng.integers(INT32.min, INT32.max, 300), rows).astype(np.int32),
        "range": rng.integers(0, 30_000, rows).astype(np.int32),
        "keys": rng.integers(INT32.min, INT32.max, rows).astype(np.int32),
        "late": late.astype(np.int32),
        "noise": rng.random(rows, dtype=np.float32),
    }
    path = written(tmp_path, columns)
    check(path, columns)
    assert encodings(path) == {
        "sparse": DICTIONARY, "range": DICTIONARY, "keys": PLAIN, "late": PLAIN, "noise": PLAIN,
    }  # fmt: skip
    group = parquet.ParquetFile(path).metadata.row_group(0)
    sizes = {
        group.column(k).path_in_schema: group.column(k).total_compressed_size for k in range(5)
    }
    # 9 bits a row for 300 values, 15 bits for 30 000 and four bytes for each of those.
    assert sizes["sparse"] == pytest.approx(rows * 9 / 8 + 300 * 4, rel=0.01)
    assert sizes["range"] == pytest.approx(rows * 15 / 8 + 30_000 * 4, rel=0.01)
    assert sizes["keys"] == pytest.approx(rows * 4, rel=0.01)


NUMBERS = st.one_of(
    npst.arrays(np.int32, st.integers(0, 300), elements=st.integers(INT32.min, INT32.max)),
    npst.arrays(np.int32, st.integers(0, 300), elements=st.integers(-3, 12)),
    npst.arrays(np.int64, st.integers(0, 300), elements=st.integers(INT64.min, INT64.max)),
    npst.arrays(np.uint32, st.integers(0, 300)).map(lambda bits: bits.view(np.float32)),
)


@settings(max_examples=200, deadline=None)
@given(column=NUMBERS, repeat=st.integers(1, 200), skip=st.integers(0, 3))
def test_any_column_comes_back(
    tmp_path_factory: pytest.TempPathFactory, column: Any, repeat: int, skip: int
) -> None:
    columns = {"é x": np.tile(column, repeat)}
    sliced = batch(columns).slice(skip)
    path = tmp_path_factory.mktemp("any") / "x.parquet"
    write = packed.Packer().encode(sliced)
    assert write is not None
    write(path)
    check(path, {"é x": columns["é x"][skip:]})


def test_a_packer_uses_its_memory_again_without_mixing_parts(tmp_path: Path) -> None:
    packer = packed.Packer()
    many: dict[str, Any] = {
        "a": np.arange(40_000, dtype=np.int32) % 9,
        "b": np.arange(40_000, dtype=np.float32),
    }
    few: dict[str, Any] = {"a": np.array([5], dtype=np.int64)}
    for number, columns in enumerate([many, few, many]):
        write = packer.encode(batch(columns))
        assert write is not None
        write(tmp_path / f"{number}.parquet")
    check(tmp_path / "0.parquet", many)
    check(tmp_path / "1.parquet", few)
    assert (tmp_path / "2.parquet").read_bytes() == (tmp_path / "0.parquet").read_bytes()


def test_metadata_names_the_writer_and_every_page_counts_its_rows(tmp_path: Path) -> None:
    columns = {"a": np.arange(40_000, dtype=np.int32) % 100}
    metadata = parquet.ParquetFile(written(tmp_path, columns)).metadata
    assert metadata.created_by.startswith("temper version ")
    chunk = metadata.row_group(0).column(0)
    assert chunk.compression == "UNCOMPRESSED"
    assert chunk.num_values == metadata.num_rows == 40_000
    assert (chunk.dictionary_page_offset, chunk.is_stats_set) == (4, False)
    # Batches that end inside pages: pyarrow counts each page's values.
    batches = parquet.ParquetFile(tmp_path / "x.parquet").iter_batches(batch_size=777)
    assert same_bits(np.concatenate([item["a"].to_numpy() for item in batches]), columns["a"])


@pytest.fixture
def day(tmp_path: Path) -> Path:
    synthetic.write_criteo_like(tmp_path / "day.tsv", 5000)
    return tmp_path / "day.tsv"


def test_every_compression_gives_the_same_table(day: Path, tmp_path: Path) -> None:
    expected = etl.criteo_pipeline(1000).table(day).combine_chunks()
    for compression in (None, "packed", "none", "lz4", "zstd", "snappy"):
        folder = tmp_path / f"{compression}"
        report = etl.criteo_pipeline(1000, rows_per_part=1500).run(
            day, folder, compression=compression
        )
        tables = [parquet.read_table(folder / part) for part in report.parts]
        assert len(tables) > 1
        assert pa.concat_tables(tables).combine_chunks().equals(expected)
        codec = parquet.ParquetFile(folder / report.parts[0]).metadata.row_group(0).column(0)
        wanted = "uncompressed" if compression in (None, "packed", "none") else compression
        assert codec.compression == wanted.upper()


def test_columns_of_lists_and_hosts_without_the_library_take_another_writer(
    day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = etl.Schema("s", (etl.Column("x", "int", "category"),))
    (tmp_path / "x.tsv").write_text("0\n2\n1\n")
    etl.Pipeline([etl.OneHot(3)], schema).run(tmp_path / "x.tsv", tmp_path / "lists")
    table = parquet.read_table(tmp_path / "lists" / "part-00000.parquet")
    assert table["x"].to_pylist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    etl.criteo_pipeline().run(day, tmp_path / "native")
    monkeypatch.setenv("TEMPER_PURE", "1")
    etl.criteo_pipeline().run(day, tmp_path / "pure")
    found, expected = (
        parquet.ParquetFile(tmp_path / side / "part-00000.parquet") for side in ("native", "pure")
    )
    assert found.read().equals(expected.read())
    assert expected.metadata.created_by.startswith("parquet-cpp")


def test_a_compression_that_the_format_lacks_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="arrow files have no compression 'packed'"):
        Output(tmp_path, "arrow", "packed")
    with pytest.raises(UsageError, match="parquet files have no compression 'brotli'"):
        Output(tmp_path, "parquet", "brotli")
    assert Output(tmp_path, "arrow").compression == "lz4"


@pytest.mark.parametrize("compression", ["packed", "lz4"])
def test_a_full_disk_is_told_and_leaves_no_half_written_part(
    day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    encode = Output.encode

    def full(self: Output, batch: Any) -> Any:
        encoded = encode(self, batch)

        def write(path: Path) -> None:
            path.write_bytes(b"PAR1 and then")
            raise OSError(errno.ENOSPC, "No space left on device")

        pieces = tuple(replace(piece, write=write) for piece in encoded.pieces)
        return replace(encoded, pieces=pieces)

    monkeypatch.setattr(Output, "encode", full)
    with pytest.raises(UsageError, match=r"cannot write .*: No space left on device"):
        etl.criteo_pipeline().run(day, tmp_path / "out", compression=compression)
    assert {file.name for file in (tmp_path / "out").iterdir()} <= {MANIFEST}
    monkeypatch.undo()
    report = etl.criteo_pipeline().run(day, tmp_path / "out", compression=compression, resume=True)
    assert report.rows == 5000
