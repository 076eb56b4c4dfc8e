"""Text of any kind: the native parser, eight fields at a time, against the plain Python one."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from temper import etl
from temper.etl import kernel

pytestmark = pytest.mark.skipif(not kernel.native(), reason="the native library is not built")

SCHEMA = etl.Schema(
    "text",
    (etl.Column("label", "int", "label", bits=32), etl.Column("n", missing=-3),
     etl.Column("logged"), etl.Column("x", "float"), etl.Column("h", "hex", "category"),
     etl.Column("wide", "hex", "category")),
)  # fmt: skip
OPERATORS = [
    etl.Neg2Zero(columns=("logged",)),
    etl.Logarithm("log1p", columns=("logged",)),
    etl.Hex2Int(),
    etl.Modulus(1000, columns=("h",)),
]

INTEGERS = st.one_of(
    st.integers(-70, 20_000).map(str),
    st.integers(-(2**33), 2**33).map(str),
    st.sampled_from(["", "-", "+", "+5", "-0", "007", "--1", " 4", '"12"', "1.5", "99999", "-9999",
                     "1e3", "9" * 20, "12345678", "-1234567890", ":", "/1", "5é"]),
)  # fmt: skip
NUMBERS = st.sampled_from(["", "0", "-1.5", "1e-3", "7", "nan", "inf", "1e99", "x"])
HEXADECIMAL = st.one_of(
    st.integers(0, 2**32 - 1).map("{:08x}".format),
    st.integers(0, 2**32 - 1).map("{:08X}".format),
    st.sampled_from(["", "f", "0xff", "deadbeeg", "DEADBEEF", "`@:/gG00", "1234567", "123456789",
                     "7fffffffffffffff", "ffffffffffffffff", '"0a"', "-0000001", "000000é"]),
)  # fmt: skip
GOOD = ["1", "2", "3", "4.0", "0000000a", "0000000b"]


def parse(path: Path, policy: str, *, pure: bool) -> tuple[Any, Any]:
    with mock.patch.dict(os.environ, {"TEMPER_PURE": "1" if pure else ""}):
        pipeline = etl.Pipeline(OPERATORS, SCHEMA, on_error=policy)
        table = pipeline.table(path)
    counters = pipeline.counters
    return table, (counters.rows, counters.lines, counters.malformed, counters.examples)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(INTEGERS, INTEGERS, INTEGERS, NUMBERS, HEXADECIMAL, HEXADECIMAL).map(list)
        | st.lists(st.sampled_from(["", "1", "ab"]), max_size=9),
        max_size=12,
    ),
    copies=st.integers(1, 30),
    seed=st.integers(0, 9),
    line_end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    policy=st.sampled_from(["skip", "fill"]),
)
def test_any_text_gives_what_the_plain_parser_gives(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], copies: int, seed: int,
    line_end: str, last: bool, policy: str,
) -> None:  # fmt: skip
    # Usual rows around the others, so that some batches of rows are usual and some are not.
    lines = [*rows, *[GOOD] * (len(rows) * copies + 1)]
    random.Random(seed).shuffle(lines)
    text = line_end.join("\t".join(fields) for fields in [GOOD, *lines]) + line_end * last
    path = tmp_path_factory.mktemp("text") / "x.tsv"
    path.write_text(text, encoding="utf-8", newline="")
    found, counted = parse(path, policy, pure=False)
    expected, told = parse(path, policy, pure=True)
    assert counted == told
    assert all(
        a.to_numpy().tobytes() == b.to_numpy().tobytes()
        for a, b in zip(found.columns, expected.columns, strict=True)
    )


@pytest.mark.parametrize("value", [*range(-66, -60), *range(-2, 12), 999, 1000, 9999, 10_000,
                                   16_319, 16_320, 99_999, -999, -1000])  # fmt: skip
def test_integers_around_every_edge_of_the_quick_way(tmp_path: Path, value: int) -> None:
    schema = etl.Schema("s", (etl.Column("a", bits=32), etl.Column("b", missing=5)))
    (tmp_path / "x.tsv").write_text(f"{value}\t{value}\n1\t\n" * 40)
    table = etl.Pipeline([], schema).table(tmp_path / "x.tsv")
    assert table["a"].to_pylist() == [value, 1] * 40
    assert table["b"].to_pylist() == [value, 5] * 40
