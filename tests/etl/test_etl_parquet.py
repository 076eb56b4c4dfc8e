"""Natively decoded Parquet equals what pyarrow reads, whoever wrote it and whatever is damaged."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from temper import etl
from temper.errors import BadFileError
from temper.etl import decode, kernel, kernel_types
from temper.etl.execute import Position
from temper.etl.inputs import open_sources
from temper.etl.sources import Input

pytestmark = pytest.mark.skipif(not kernel.native(), reason="needs the native kernels")

SCHEMA = etl.Schema(
    "mixed",
    (etl.Column("label", "int", "label", bits=32), etl.Column("n"), etl.Column("f", "float"),
     etl.Column("h", "hex", "category"), etl.Column("wide", "hex", "category")),
)  # fmt: skip
OPERATORS = [
    etl.Neg2Zero(columns=("n",)),
    etl.Logarithm("log1p", columns=("f",)),
    etl.Hex2Int(),
    etl.Modulus(1000, columns=("h",)),
]
CODES = st.sampled_from(["snappy", "none", "zstd", "gzip", "brotli"])
NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"]


def outcome(
    path: Path, *, native: bool, on_error: str = "error", size: int = 333
) -> tuple[Any, ...]:
    """The result or the error of a pipeline, by the decoder alone or by pyarrow alone."""
    pipeline = etl.Pipeline(OPERATORS, SCHEMA, on_error=on_error, rows_per_part=size)
    other = (
        mock.patch.object(Input, "batches", side_effect=AssertionError("pyarrow was asked"))
        if native
        else mock.patch.object(decode.Decoder, "read", return_value=(0, []))
    )
    with other:
        return told(pipeline, path)


def told(pipeline: etl.Pipeline, path: Path) -> tuple[Any, ...]:
    try:
        table = pipeline.table(path)
    except BadFileError as error:
        return ("error", str(path) in str(error), str(error))
    counters = pipeline.counters
    # As text, since not-a-number does not equal itself.
    return ("table", str(table.to_pydict()), counters.malformed, counters.examples, counters.rows)


def make_table(
    rng: np.random.Generator, rows: int, null_share: float, words: int, *, required: bool = False,
    number: str = "int64", text: str = "string", malformed: bool = False,
) -> pa.Table:  # fmt: skip
    def column(values: Any, kind: str) -> pa.Array:
        return pa.array(values, mask=rng.random(rows) < null_share).cast(kind)

    # Whole ranges of words, so that a dictionary is full or spills into plain pages.
    pool = [f"{value:08x}" for value in rng.integers(0, 2**32, words)]
    pool += ["", "7", "ABC", "00000Ff0", "0x1f", "ffffffffffffffff"]
    if malformed:
        pool += ["zz", "1" * 17, "g1234567"]
    reals = np.exp(rng.normal(0, 9, rows))
    if malformed:
        reals[rng.random(rows) < 0.02] = -np.inf
        reals[rng.random(rows) < 0.02] = np.nan
        reals[rng.random(rows) < 0.02] = 1e300
    most = 2**31 - 1 if number[-2:] in ("32", "64") else 100
    least = 0 if number.startswith("u") else -most
    wide = rng.integers(0, 2**64, rows, dtype=np.uint64)
    labels = rng.integers(-(2**31), 2**31, rows) * (3 if malformed else 1)
    arrays = [
        column(rng.choice(pool, rows), text),
        column(labels, "int64" if malformed else "int32"),
        column(rng.integers(least, most, rows), number),
        column(reals, "float64"),
        column([f"{value:016X}" for value in wide], "string"),
    ]
    names = ["h", "label", "n", "f", "wide"]  # another order than the schema's
    fields = [
        pa.field(name, array.type, nullable=not required)
        for name, array in zip(names, arrays, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_files_of_pyarrow_read_as_pyarrow_reads_them(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "made.parquet"
    nulls = data.draw(st.sampled_from([0.0, 0.1, 0.9, 1.0]))
    table = make_table(
        np.random.default_rng(data.draw(st.integers(0, 2**32))),
        data.draw(st.sampled_from([0, 1, 8, 333, 1500, 5000])),
        nulls,
        data.draw(st.sampled_from([1, 40, 4000])),
        required=nulls == 0 and data.draw(st.booleans()),
        number=data.draw(st.sampled_from(NUMBERS)),
        text=data.draw(st.sampled_from(["string", "large_string", "binary"])),
        malformed=data.draw(st.booleans()),
    )
    parquet.write_table(
        table,
        path,
        compression=data.draw(CODES),
        use_dictionary=data.draw(st.sampled_from([True, False, ["h", "n"]])),
        data_page_size=data.draw(st.sampled_from([1, 200, 1 << 20])),
        write_batch_size=data.draw(st.sampled_from([7, 1024])),
        dictionary_pagesize_limit=data.draw(st.sampled_from([100, 1 << 20])),
        data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
        row_group_size=data.draw(st.sampled_from([10, 1000, 1 << 20])),
        write_statistics=data.draw(st.booleans()),
        store_schema=data.draw(st.booleans()),
    )
    policy = data.draw(st.sampled_from(kernel_types.POLICIES))
    assert outcome(path, native=True, on_error=policy) == outcome(
        path, native=False, on_error=policy
    )


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_files_of_polars_read_as_pyarrow_reads_them(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "made.parquet"
    table = make_table(
        np.random.default_rng(data.draw(st.integers(0, 2**32))),
        data.draw(st.sampled_from([0, 1, 333, 5000])),
        data.draw(st.sampled_from([0.0, 0.1, 1.0])),
        data.draw(st.sampled_from([1, 40, 4000])),
        number=data.draw(st.sampled_from(NUMBERS)),
    )
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(
        path,
        compression=data.draw(
            st.sampled_from(["snappy", "uncompressed", "zstd", "gzip", "brotli"])
        ),
        row_group_size=data.draw(st.sampled_from([100, 1000, None])),
        data_page_size=data.draw(st.sampled_from([100, None])),
    )
    assert outcome(path, native=True) == outcome(path, native=False)


@pytest.mark.parametrize("kind", ["dictionary", "float32", "categorical"])
def test_types_that_arrow_keeps_beside_parquets_own_are_read(tmp_path: Path, kind: str) -> None:
    table = make_table(np.random.default_rng(0), 500, 0.1, 30)
    path = tmp_path / "x.parquet"
    if kind == "categorical":
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        frame.with_columns(pl.col("h").cast(pl.Categorical)).write_parquet(path)
    else:
        name = "h" if kind == "dictionary" else "f"
        column = table[name].dictionary_encode() if name == "h" else table[name].cast(pa.float32())
        place = table.column_names.index(name)
        parquet.write_table(table.set_column(place, name, column), path)
    assert outcome(path, native=True) == outcome(path, native=False)


def test_text_that_is_no_utf8_is_told_all_the_same(tmp_path: Path) -> None:
    table = make_table(np.random.default_rng(0), 5, 0, 3)
    broken = pa.array([b"1", b"\xff\xfe", b"2", b"\xff\xfe", b"3"])
    broken = pa.Array.from_buffers(pa.string(), 5, broken.buffers())
    for encoded in (True, False):
        path = tmp_path / f"{encoded}.parquet"
        parquet.write_table(table.set_column(0, "h", broken), path, use_dictionary=encoded)
        found = outcome(path, native=True, on_error="skip")
        assert found == outcome(path, native=False, on_error="skip")
        assert found[2:] == (
            {"not hexadecimal": 2},
            [f"{path}, row {row}, column h: not hexadecimal: '\ufffd\ufffd'" for row in (2, 4)],
            3,
        )


@pytest.mark.parametrize("offset", [0, 1, 999, 1000, 1001, 2500, 2999, 3000])
def test_reading_starts_at_any_row(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "x.parquet"
    table = make_table(np.random.default_rng(1), 3000, 0.1, 50)
    parquet.write_table(table, path, row_group_size=1000, data_page_size=100)
    pipeline = etl.Pipeline(OPERATORS, SCHEMA, rows_per_part=70)
    whole = pipeline.table(path)
    sources = open_sources([str(path)], SCHEMA)
    executor = pipeline._executor(grow=False)
    parts = [part.batch for part, _ in executor.parts(sources, Position(0, offset, offset))]
    assert str(pa.Table.from_batches(parts).to_pydict()) == str(whole.slice(offset).to_pydict())


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "lz4"},
        {"use_dictionary": False, "column_encoding": {"n": "DELTA_BINARY_PACKED"}},
        {"use_dictionary": False, "column_encoding": {"h": "DELTA_BYTE_ARRAY"}},
        {"use_dictionary": False, "column_encoding": {"f": "BYTE_STREAM_SPLIT"}},
    ],
)
def test_what_the_decoder_does_not_know_pyarrow_reads(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path, plain = tmp_path / "x.parquet", tmp_path / "plain.parquet"
    table = make_table(np.random.default_rng(2), 2000, 0.1, 50)
    parquet.write_table(table, path, **options)
    parquet.write_table(table, plain)
    found = told(etl.Pipeline(OPERATORS, SCHEMA), path)
    assert found == told(etl.Pipeline(OPERATORS, SCHEMA), plain)
    with pytest.raises(AssertionError, match="pyarrow was asked"):
        outcome(path, native=True)


@pytest.mark.parametrize("calls", range(5))
def test_pyarrow_goes_on_where_the_decoder_gives_up(
    tmp_path: Path, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"
    table = make_table(np.random.default_rng(3), 1000, 0.1, 50, malformed=True)
    parquet.write_table(table, path, row_group_size=400)
    expected = outcome(path, native=False, on_error="skip")
    real = kernel.RowGroup.read
    done: list[int] = []

    def read(self: kernel.RowGroup, rows: int, outs: Any) -> Any:
        if len(done) == calls:
            raise kernel.UndecodedError("enough")
        done.append(rows)
        return real(self, rows, outs)

    monkeypatch.setattr(kernel.RowGroup, "read", read)
    pipeline = etl.Pipeline(OPERATORS, SCHEMA, on_error="skip", rows_per_part=333)
    assert told(pipeline, path) == expected
    assert len(done) == calls


SMALL = etl.Schema("small", (etl.Column("n"), etl.Column("h", "hex", "category")))


def agree(path: Path, data: bytes) -> str:
    """Damaged files give what pyarrow gives, or an error where it has one."""
    path.write_bytes(data)
    pipelines = [etl.Pipeline([etl.Hex2Int()], SMALL, on_error="fill") for _ in range(2)]
    found = [told(pipelines[0], path)]
    with mock.patch.object(decode.Decoder, "read", return_value=(0, [])):
        found.append(told(pipelines[1], path))
    assert found[0][:2] == found[1][:2] if found[0][0] == "error" else found[0] == found[1]
    assert found[0][1]  # the file is named
    return str(found[0][0])


def small_file(path: Path, **options: Any) -> bytes:
    table = pa.table({"n": [1, None, 3] * 4, "h": ["0000000a", "ff", None] * 4})
    parquet.write_table(table, path, write_statistics=False, **options)
    return path.read_bytes()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoded", [False, True])
def test_no_byte_of_a_page_can_do_harm(tmp_path: Path, version: str, encoded: bool) -> None:
    path = tmp_path / "x.parquet"
    data = small_file(path, data_page_version=version, use_dictionary=encoded, compression="none")
    chunks = parquet.read_metadata(path).row_group(0)
    pages = sum(chunks.column(index).total_compressed_size for index in range(2))
    outcomes = {
        agree(path, data[:place] + bytes([value]) + data[place + 1 :])
        for place in range(4, 4 + pages)
        for value in {0, data[place] ^ 1, 0x7F, 0xFF}
    }
    assert outcomes == {"table", "error"}


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "brotli", "none"])
def test_damaged_files_are_told_or_read_as_pyarrow_reads_them(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "x.parquet"
    rng = random.Random(codec)
    outcomes = set()
    for _ in range(60):
        data = bytearray(small_file(path, compression=codec, data_page_size=rng.choice([20, 999])))
        pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        first = rng.randrange(4, pages)
        behind = min(first + rng.choice([1, 2, 30]), pages)
        match rng.randrange(4):
            case 0:
                data[first:behind] = rng.randbytes(behind - first)
            case 1:  # bytes move up, as if some were lost
                data[first:pages] = data[behind:pages] + bytes(behind - first)
            case 2:
                data[first] ^= 1 << rng.randrange(8)
            case 3:
                del data[rng.randrange(len(data)) :]
        outcomes.add(agree(path, bytes(data)))
    assert "error" in outcomes


def test_a_damaged_footer_is_told_and_never_ends_the_process(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    data = small_file(path)
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for place in range(pages, len(data)):
        for value in (0, data[place] ^ 2, 0xFF):
            path.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
            told(etl.Pipeline([etl.Hex2Int()], SMALL, on_error="fill"), path)
