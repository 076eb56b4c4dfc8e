"""Malformed input is an error with its place, or counted, never a silent change."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from temper import etl
from temper.errors import BadFileError, UsageError

SCHEMA = etl.Schema(
    "small",
    (etl.Column("label", "int", "label", bits=32), etl.Column("n"),
     etl.Column("h", "hex", "category")),
)  # fmt: skip
OPERATORS = [etl.Neg2Zero(), etl.Hex2Int(), etl.Modulus(1000)]

BAD = {
    "1\tx\t0a": ("column n", "not an integer"),
    "1\t2\t0g": ("column h", "not hexadecimal"),
    "1\t2": ("row 2", "wrong number of columns"),
    "1\t2\t3\t4": ("row 2", "wrong number of columns"),
    "1\t99999999999999999999\t1": ("column n", "out of range"),
    "5000000000\t2\t1": ("column label", "out of range"),
    "1\t2\t11112222333344445": ("column h", "out of range"),
    '1\t"2\t1': ("row 2", "not an integer"),
    "1\t--2\t1": ("column n", "not an integer"),
    "1\t2.5\t1": ("column n", "not an integer"),
    "1\t-\t1": ("column n", "not an integer"),
}


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


@pytest.mark.parametrize("pure", ["", "1"])
@pytest.mark.parametrize("line", BAD)
def test_a_malformed_row_is_told_with_its_place(
    tmp_path: Path, line: str, pure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPER_PURE", pure)
    path = write(tmp_path / "x.tsv", "0\t1\tff", line, "1\t3\t10")
    where, why = BAD[line]
    with pytest.raises(BadFileError, match=why) as caught:
        etl.Pipeline(OPERATORS, SCHEMA).table(path)
    assert where in str(caught.value)
    assert "row 2" in str(caught.value)

    skipping = etl.Pipeline(OPERATORS, SCHEMA, on_error="skip")
    table = skipping.table(path)
    assert table.to_pydict() == {"label": [0, 1], "n": [1, 3], "h": [255, 16]}
    assert skipping.counters.malformed == {why: 1}
    assert where in skipping.counters.examples[0]

    filling = etl.Pipeline(OPERATORS, SCHEMA, on_error="fill")
    assert filling.table(path).num_rows == 3
    assert filling.counters.malformed == {why: 1}


def test_filling_takes_what_is_there_and_the_missing_value_for_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "1\t2\t3", "1\tx\t4", "1\t5", "1\t6\t7\t8")
    table = etl.Pipeline(OPERATORS, SCHEMA, on_error="fill").table(path)
    assert table.to_pydict() == {"label": [1, 1, 1, 1], "n": [2, 0, 5, 6], "h": [3, 4, 0, 7]}


def test_negative_and_huge_integers_are_exact(tmp_path: Path) -> None:
    values = [-(2**63), 2**63 - 1, -1, 2**31, 12345678901]
    path = write(tmp_path / "x.tsv", *(f"0\t{value}\t1" for value in values))
    table = etl.Pipeline([], SCHEMA).table(path)
    assert table["n"].to_pylist() == values
    assert "h" not in table.column_names  # hexadecimal text that nothing reads


def test_empty_files_give_an_empty_table_with_the_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv")
    table = etl.Pipeline(OPERATORS, SCHEMA).table(path)
    assert table.num_rows == 0
    assert table.column_names == ["label", "n", "h"]
    report = etl.Pipeline(OPERATORS, SCHEMA).run(path, tmp_path / "out")
    assert (report.rows, len(report.parts)) == (0, 1)


def test_a_file_whose_rows_all_differ_from_the_schema_is_schema_drift(tmp_path: Path) -> None:
    good = write(tmp_path / "a.tsv", "0\t1\tff")
    drifted = write(tmp_path / "b.tsv", "0\t1\tff\t9", "0\t1\tff\t9")
    with pytest.raises(BadFileError, match=r"b.tsv has 4 columns, schema 'small' has 3"):
        etl.Pipeline(OPERATORS, SCHEMA, on_error="skip").table([good, drifted])


def test_a_header_without_a_column_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "label,h", "0,ff")
    with pytest.raises(BadFileError, match="header lacks n"):
        etl.Pipeline(OPERATORS, SCHEMA).table(path)


def test_parquet_without_a_column_or_with_a_wrong_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"label": [1], "n": [2]}), path)
    with pytest.raises(BadFileError, match="lacks the columns h"):
        etl.Pipeline(OPERATORS, SCHEMA).table(path)
    parquet.write_table(pa.table({"label": [1], "n": [[2]], "h": ["1"]}), path)
    with pytest.raises(BadFileError, match="column 'n' is list"):
        etl.Pipeline(OPERATORS, SCHEMA).table(path)
    path.write_bytes(b"PAR1 this is none")
    with pytest.raises(BadFileError, match="cannot be read"):
        etl.Pipeline(OPERATORS, SCHEMA).table(path)


@pytest.mark.parametrize("encoded", [False, True])
def test_malformed_values_in_columns_are_told_skipped_or_filled(
    tmp_path: Path, encoded: bool
) -> None:
    text = pa.array(["ff", "zz", None, "10"])
    path = tmp_path / "x.arrow"
    table = pa.table(
        {"label": [1, 2, 3, 2**40], "n": [5, -6, None, 8],
         "h": text.dictionary_encode() if encoded else text}
    )  # fmt: skip
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(BadFileError, match="row 2, column h: not hexadecimal: 'zz'"):
        etl.Pipeline(OPERATORS, SCHEMA).table(path)
    skipping = etl.Pipeline(OPERATORS, SCHEMA, on_error="skip")
    assert skipping.table(path).to_pydict() == {"label": [1, 3], "n": [5, 0], "h": [255, 0]}
    assert skipping.counters.malformed == {"not hexadecimal": 1, "out of range": 1}
    filling = etl.Pipeline(OPERATORS, SCHEMA, on_error="fill")
    assert filling.table(path).to_pydict() == {
        "label": [1, 2, 3, 0], "n": [5, 0, 0, 8], "h": [255, 0, 0, 16],
    }  # fmt: skip


def test_a_row_longer_than_any_row_is_no_text_file(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes(b"0\t1\tff\n" + b"\0" * (40 << 20))
    with pytest.raises(BadFileError, match="longer than 16 MiB"):
        etl.Pipeline(OPERATORS, SCHEMA).table(path)


def test_empty_lines_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes(b"\n\r\n0\t1\tff\n" + b"\n" * 600_000 + b"\r\n1\t1\tff\n")
    for policy in ("error", "skip", "fill"):
        pipeline = etl.Pipeline(OPERATORS, SCHEMA, on_error=policy)
        assert pipeline.table(path).num_rows == 2
        assert not pipeline.counters.malformed


def test_unknown_inputs_and_formats_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no input"):
        etl.Pipeline(OPERATORS, SCHEMA).table(tmp_path / "nowhere.tsv")
    odd = tmp_path / "x.xlsx"
    odd.write_text("")
    with pytest.raises(UsageError, match="what format"):
        etl.Pipeline(OPERATORS, SCHEMA).table(odd)


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ([etl.Modulus(10)], "hexadecimal text"),
        ([etl.Hex2Int(columns=("n",))], "numbers already"),
        ([etl.Logarithm(), etl.Modulus(3, columns=("n",))], "needs integers"),
        ([etl.Hex2Int(), etl.VocabMap(), etl.Modulus(3)], "before the vocabulary"),
        ([etl.Neg2Zero(columns=("q",))], "which schema"),
        ([etl.Hex2Int(), etl.OneHot(3), etl.Modulus(3)], "nothing can follow OneHot"),
    ],
)
def test_chains_that_make_no_sense_are_refused_before_any_file(
    operators: list[etl.Operator], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        etl.Pipeline(operators, SCHEMA)


def test_an_output_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "0\t1\tff")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        etl.Pipeline(OPERATORS, SCHEMA).run(path, blocked / "out")
    if os.geteuid() != 0:
        sealed = tmp_path / "sealed"
        sealed.mkdir(mode=0o500)
        with pytest.raises(UsageError, match="cannot write to"):
            etl.Pipeline(OPERATORS, SCHEMA).run(path, sealed)
