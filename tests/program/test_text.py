"""Programs print one line an op and parse back to equal programs."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_programs import programs, small_program

from temper.errors import BadFileError
from temper.program import Op, Program, TensorSpec, parse, to_text


def test_a_program_reads_well() -> None:
    assert to_text(small_program()) == (
        "program mlp on n150\n"
        "option optimization_level = 2\n"
        "option export_path = \"\"\n"
        "input %x : bfloat16[64,784] tile dram\n"
        "weight %w \"fc1.weight\" : bfloat8_b[784,128] tile dram\n"
        "weight %b \"fc1.bias\" : bfloat16[128] tile dram\n"
        "const %b2 = Typecast(%b) : float32[128] tile dram\n"
        "%0 = Matmul(%x, %w, bias=%b2) {fidelity=HiFi2, activations=[[relu]]} : "
        "bfloat16[64,128] tile sram height grid=2x1 shard=32x128  # module fc1 model.py:12\n"
        "%1, %2 = TopK(%0) {k=5} : bfloat16[64,5] tile dram, int32[64,5] tile dram\n"
        "return %1, %2\n"
    )  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_any_program_parses_back_to_an_equal_one(program: Program) -> None:
    assert parse(to_text(program)) == program


def test_a_value_without_a_spec_can_be_printed_and_read() -> None:
    program = Program("broken", "n150", {}, (Op("Copy", ("x",), ("y",)),), ("x",), ("y",))
    assert ": ?" in to_text(program)
    assert parse(to_text(program)) == program


def test_comments_and_blank_lines_are_skipped() -> None:
    text = to_text(small_program())
    assert parse("# a remark\n\n" + text.replace("\n", "\r\n\r\n")) == small_program()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("program mlp", "graph mlp", "line 1, column 1: expected 'program'"),
        ("return %1, %2\n", "", "truncated"),
        ("return %1, %2\n", "return %1, %2\ninput %z : bfloat16[] tile dram", "nothing may follow"),
        ("tile sram", "tiled sram", "unknown word 'tiled'"),
        ("bias=%b2", "biass=%b2", "is not called 'biass'"),
        ("bfloat8_b[784,128] tile", "bfloat8_b[784,128] row_major", "cannot be row-major"),
        ("bfloat16[64,784]", "bfloat17[64,784]", "unknown tensor format"),
        ("[64,784]", "[64,-784]", "expected a size"),
        ("grid=2x1 ", "", "expected 'grid'"),
        ("fidelity=HiFi2,", "k=1, k=1,", "given twice"),
        ("model.py:12", "model.py", "expected a source"),
        ("Matmul(", "Matmul", "expected '('"),
        ("[[relu]]", "[" * 100 + "]" * 100, "nested too deeply"),
        ("k=5", "k=5 §", "cannot read"),
        ("k=5", "k=\"\\q\"", "not a string"),
        ("k=5", "k=-five", "unexpected"),
    ],
)  # fmt: skip
def test_mistakes_name_their_line(old: str, new: str, words: str) -> None:
    text = to_text(small_program())
    assert old in text
    with pytest.raises(BadFileError) as caught:
        parse(text.replace(old, new))
    assert words in str(caught.value)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 10_000), st.text(max_size=5))
def test_damaged_text_gives_a_program_or_a_clear_error(start: int, end: int, put: str) -> None:
    text = to_text(small_program())
    start, end = sorted((start % len(text), end % len(text)))
    damaged = text[:start] + put + text[min(end, start + 6) :]
    with contextlib.suppress(BadFileError):
        parse(damaged)


def test_specs_of_every_rank_are_shown() -> None:
    program = Program("p", "n150", {"s": TensorSpec(()), "z": TensorSpec((0, 3))}, ())
    assert "value %s : bfloat16[] tile dram" in to_text(program)
    assert parse(to_text(program)) == program
