"""Rules for values that files hold: hashes of 64 bits, NaN, quotes, empty lines, encodings."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from temper import etl
from temper.errors import BadFileError

SCHEMA = etl.Schema(
    "three", (etl.Column("n"), etl.Column("f", "float"), etl.Column("h", "hex", "category"))
)
HASHES = ["0", "7fffffffffffffff", "8000000000000000", "FFFFFFFFFFFFFFFF", "deadbeefdeadbeef"]


@pytest.fixture(params=["", "1"], ids=["native", "pure"], autouse=True)
def _twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_PURE", request.param)


def text(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def columns(path: Path, **changed: Any) -> Path:
    arrays = {"n": pa.array([1, 2]), "f": pa.array([0.5, 1.5]), "h": pa.array(["1", "2"])}
    parquet.write_table(pa.table({**arrays, **changed}), path)
    return path


def run(path: Path, *operators: etl.Operator, on_error: str = "error") -> dict[str, list[Any]]:
    made: dict[str, list[Any]] = (
        etl.Pipeline(operators, SCHEMA, on_error=on_error).table(path).to_pydict()
    )
    return made


def test_hexadecimal_text_is_unsigned_to_its_last_bit(tmp_path: Path) -> None:
    path = text(tmp_path / "x.tsv", *(f"1\t1\t{word}" for word in HASHES))
    want = [int(word, 16) for word in HASHES]
    assert run(path, etl.Hex2Int())["h"] == want
    assert run(path, etl.Hex2Int(), etl.Modulus(1009))["h"] == [v % 1009 for v in want]
    logs = np.log1p(np.array(want, dtype=np.uint64).astype(np.float32)).astype(np.float32)
    got = run(path, etl.Hex2Int(), etl.Logarithm("log1p", columns=("h",)))["h"]
    np.testing.assert_allclose(got, logs, rtol=1e-6)
    clipped = run(path, etl.Hex2Int(), etl.Clip(low=-5, high=100, columns=("h",)))["h"]
    assert clipped == [min(v, 100) for v in want]


def test_large_hashes_keep_their_own_identifiers(tmp_path: Path) -> None:
    path = text(tmp_path / "x.tsv", *(f"1\t1\t{word}" for word in [*HASHES, *HASHES]))
    assert run(path, etl.Hex2Int(), etl.VocabGen(), etl.VocabMap())["h"] == [1, 2, 3, 4, 5] * 2


def test_unsigned_columns_of_parquet_are_hashes_too(tmp_path: Path) -> None:
    words = np.array([5, 2**64 - 1], dtype=np.uint64)
    path = columns(tmp_path / "x.parquet", h=pa.array(words))
    assert run(path, etl.Hex2Int(), etl.Modulus(1000))["h"] == [5, (2**64 - 1) % 1000]
    path = columns(tmp_path / "y.parquet", n=pa.array(words))
    with pytest.raises(BadFileError, match="out of range"):
        run(path, etl.Hex2Int())


@pytest.mark.parametrize("value", ["nan", "inf", "1e300"])
def test_what_is_no_finite_number_is_malformed_in_text_and_in_columns(
    tmp_path: Path, value: str
) -> None:
    rows = text(tmp_path / "x.tsv", "1\t0.5\t1", f"2\t{value}\t2")
    table = columns(tmp_path / "x.parquet", f=pa.array([0.5, float(value)]))
    for path in (rows, table):
        with pytest.raises(BadFileError, match=r"row 2, column f: (not a number|out of range)"):
            run(path, etl.Hex2Int())
        assert run(path, etl.Hex2Int(), on_error="skip")["f"] == [0.5]
        assert run(path, etl.Hex2Int(), on_error="fill")["f"] == [0.5, 0.0]


def test_a_null_is_missing_not_malformed(tmp_path: Path) -> None:
    path = columns(tmp_path / "x.parquet", f=pa.array([0.5, None]))
    assert run(path, etl.Hex2Int())["f"] == [0.5, 0.0]


def test_half_precision_columns_are_read(tmp_path: Path) -> None:
    path = columns(tmp_path / "x.parquet", f=pa.array(np.array([0.5, 1.5], dtype=np.float16)))
    assert run(path, etl.Hex2Int())["f"] == [0.5, 1.5]


@pytest.mark.parametrize(
    "encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "PLAIN", "RLE_DICTIONARY"]
)
def test_every_encoding_of_text_is_read(tmp_path: Path, encoding: str) -> None:
    words = [f"{i % 7:x}" for i in range(5000)]
    table = pa.table({"n": pa.array(range(5000)), "f": pa.array([1.0] * 5000), "h": words})
    plain = encoding != "RLE_DICTIONARY"
    parquet.write_table(
        table, tmp_path / "x.parquet", use_dictionary=not plain, row_group_size=1000,
        column_encoding={"h": encoding} if plain else None,
    )  # fmt: skip
    assert run(tmp_path / "x.parquet", etl.Hex2Int())["h"] == [i % 7 for i in range(5000)]


def test_a_quoted_field_may_hold_the_delimiter(tmp_path: Path) -> None:
    schema = etl.Schema(
        "q", (etl.Column("n"), etl.Column("note", "hex", "category"), etl.Column("m"))
    )
    path = text(tmp_path / "x.csv", '1,"a, ""b""",2', '"3",c,"4"', " 5 ,d, 6 ")
    pipeline = etl.Pipeline([], schema)
    assert pipeline.table(path).to_pydict() == {"n": [1, 3, 5], "m": [2, 4, 6]}


@pytest.mark.parametrize("line", ['"1,2",3', '1",2,3', '"1,2,3'])
def test_half_a_quote_is_no_field(tmp_path: Path, line: str) -> None:
    path = text(tmp_path / "x.csv", "1,2,3", line)
    with pytest.raises(BadFileError, match="row 2"):
        run(path, etl.Hex2Int())


def test_a_truncated_archive_says_what_is_wrong(tmp_path: Path) -> None:
    whole = gzip.compress(b"1\t1\tff\n" * 50_000)
    path = tmp_path / "x.tsv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadFileError, match=r"(?i)x\.tsv\.gz.*(truncat|end)"):
        run(path, etl.Hex2Int())
