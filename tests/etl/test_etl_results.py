"""Pipelines give exactly what the same steps in Polars give, whatever the input format."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import etl_reference as reference
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from temper import etl
from temper.etl import synthetic

ROWS = 30_000
MODULUS = 1000


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("criteo") / "day.tsv"
    synthetic.write_criteo_like(path, ROWS, seed=7)
    return path


@pytest.fixture(scope="module")
def expected(day: Path) -> pl.DataFrame:
    return reference.appearance_ids(reference.stateless(reference.read_tsv(day), MODULUS))


def same(table: pa.Table, expected: pl.DataFrame) -> None:
    found = pl.DataFrame(pl.from_arrow(table))
    assert found.columns == expected.columns
    assert found.shape == expected.shape
    for name in expected.columns:
        assert found[name].dtype == expected[name].dtype, name
        assert np.array_equal(found[name].to_numpy(), expected[name].to_numpy()), name


def test_a_tsv_file_gives_what_polars_gives(day: Path, expected: pl.DataFrame) -> None:
    same(etl.criteo_pipeline(MODULUS).table(day), expected)


def test_results_do_not_depend_on_threads(
    day: Path, expected: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("TEMPER_ETL_THREADS", threads)
        same(etl.criteo_pipeline(MODULUS).table(day), expected)


def test_small_parts_change_nothing(day: Path, expected: pl.DataFrame) -> None:
    pipeline = etl.criteo_pipeline(MODULUS, rows_per_part=777)
    same(pipeline.table(day), expected)
    assert pipeline.counters.rows == ROWS


@pytest.mark.parametrize("text_type", [pa.string(), pa.large_string(), pa.string_view()])
def test_parquet_gives_what_tsv_gives(
    day: Path, expected: pl.DataFrame, tmp_path: Path, text_type: pa.DataType
) -> None:
    path = tmp_path / "day.parquet"
    table = reference.read_tsv(day).to_arrow()
    fields = [pa.field(f.name, text_type if f.name[0] == "C" else f.type) for f in table.schema]
    parquet.write_table(table.cast(pa.schema(fields)), path, row_group_size=8000)
    same(etl.criteo_pipeline(MODULUS).table(path), expected)


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrow_gives_what_tsv_gives(
    day: Path, expected: pl.DataFrame, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "day.arrow"
    table = reference.read_tsv(day).to_arrow()
    if kind == "file":
        feather.write_feather(table, str(path))
    else:
        with pa.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=1000)
    same(etl.criteo_pipeline(MODULUS).table(path), expected)


def test_csv_with_a_header_in_another_order_and_quotes(
    day: Path, expected: pl.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "day.csv"
    frame = reference.read_tsv(day).with_columns(pl.lit("x").alias("extra"))
    frame.select(reversed(frame.columns)).write_csv(path, quote_style="always")
    same(etl.criteo_pipeline(MODULUS).table(path), expected)


def test_compressed_text_and_several_files_are_one_stream(
    day: Path, expected: pl.DataFrame, tmp_path: Path
) -> None:
    lines = day.read_bytes().splitlines(keepends=True)
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"".join(lines[:11111]), 1))
    (tmp_path / "b.tsv").write_bytes(b"".join(lines[11111:]).rstrip(b"\n"))
    same(etl.criteo_pipeline(MODULUS).table(tmp_path), expected)


def test_windows_line_ends_and_a_byte_order_mark_are_read(
    day: Path, expected: pl.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "day.tsv"
    path.write_bytes(b"\xef\xbb\xbf" + day.read_bytes().replace(b"\n", b"\r\n"))
    same(etl.criteo_pipeline(MODULUS).table(path), expected)


def test_the_guides_logarithm_is_log_of_x_plus_epsilon_in_float32(day: Path) -> None:
    pipeline = etl.Pipeline([etl.Neg2Zero(), etl.Logarithm("log")])
    expected = reference.stateless(reference.read_tsv(day), MODULUS, "log")
    same(pipeline.table(day), expected.select("label", *reference.DENSE))


def test_logarithm_agrees_with_torch(day: Path) -> None:
    torch = pytest.importorskip("torch")
    found = etl.Pipeline([etl.Neg2Zero(), etl.Logarithm()]).table(day)
    raw = reference.read_tsv(day).fill_null(0)
    for name in reference.DENSE:
        x = torch.tensor(raw[name].to_numpy(), dtype=torch.float32)
        expected = torch.log(torch.clamp(x, min=0.0) + 1e-7).numpy()
        np.testing.assert_array_max_ulp(found[name].to_numpy(), expected, maxulp=1)


def test_the_pure_kernels_give_the_same(
    day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "few.tsv"
    path.write_bytes(b"".join(day.read_bytes().splitlines(keepends=True)[:500]))
    native = etl.criteo_pipeline(MODULUS).table(path)
    monkeypatch.setenv("TEMPER_PURE", "1")
    assert etl.criteo_pipeline(MODULUS).table(path).equals(native)


def test_clip_bucketize_and_negative_remainders(tmp_path: Path) -> None:
    schema = etl.Schema("s", (etl.Column("a"), etl.Column("b"), etl.Column("c", "float")))
    path = tmp_path / "x.tsv"
    path.write_text("-5\t-7\t2.5\n40000000000\t7\t-1e3\n\t\t\n3\t0\t0.5\n")
    table = etl.Pipeline(
        [etl.Clip(-1, 100, columns=("a",)), etl.Modulus(5, columns=("b",)),
         etl.Bucketize((0.0, 0.5, 2.0), columns=("c",))],
        schema,
    ).table(path)  # fmt: skip
    assert table["a"].to_pylist() == [-1, 100, 0, 3]
    assert table["b"].to_pylist() == [-7 % 5, 2, 0, 0]
    assert table["c"].to_pylist() == np.searchsorted([0.0, 0.5, 2.0], [2.5, -1e3, 0, 0.5]).tolist()


def test_hexadecimal_of_any_length_and_case(tmp_path: Path) -> None:
    schema = etl.Schema("s", (etl.Column("h", "hex", "category"),))
    words = ["a", "ABC", "0xff", "deadBEEF", "123456789ab", "7fffffffffffffff", "", "00000000"]
    path = tmp_path / "x.tsv"
    path.write_text("\n".join(words) + "\n")
    values = [int(word or "0", 16) for word in words]
    # A blank line is a row with one missing field in a file of one column.
    assert etl.Pipeline([etl.Hex2Int()], schema).table(path)["h"].to_pylist() == values
    table = etl.Pipeline([etl.Hex2Int(), etl.Modulus(97)], schema).table(path)
    assert table["h"].to_pylist() == [value % 97 for value in values]


def test_one_hot_and_embedding_lookup_expand_identifiers(tmp_path: Path) -> None:
    schema = etl.Schema("s", (etl.Column("h", "hex", "category"),))
    path = tmp_path / "x.tsv"
    path.write_text("0\n2\n7\n")
    hot = etl.Pipeline([etl.Hex2Int(), etl.OneHot(3)], schema).table(path)
    assert hot["h"].to_pylist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]
    rows = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    looked = etl.Pipeline([etl.Hex2Int(), etl.EmbeddingLookup(rows)], schema).table(path)
    assert looked["h"].to_pylist() == [rows[0], rows[2], [0.0, 0.0]]


def test_log_of_zero_and_below_is_as_in_c(tmp_path: Path) -> None:
    schema = etl.Schema("s", (etl.Column("x"),))
    path = tmp_path / "x.tsv"
    path.write_text("0\n-1\n-2\n")
    found = etl.Pipeline([etl.Logarithm("log1p")], schema).table(path)["x"].to_pylist()
    assert found[0] == 0
    assert found[1] == -math.inf
    assert math.isnan(found[2])


def test_stateless_neighbours_are_one_stage() -> None:
    names = [[op.name for op in stage] for stage in etl.criteo_pipeline().stages]
    assert names == [["Neg2Zero", "Logarithm", "Hex2Int", "Modulus"], ["VocabGen"], ["VocabMap"]]
