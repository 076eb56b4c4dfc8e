"""Programs print one line for each op, whatever they hold."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from random_programs import programs, small_program

from temper.program import Op, Program, TensorSpec, to_text
from temper.program.codec import from_json, to_json


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
def test_any_program_prints_a_line_for_each_op_and_comes_back_from_json(program: Program) -> None:
    lines = to_text(program).splitlines()
    assert lines[0].startswith("program ")
    assert lines[-1].startswith("return")
    defined = [line for line in lines if "(" in line.split('"')[0] or " = " in line]
    assert len(defined) >= len(program.ops) + len(program.const_ops)
    assert from_json(json.loads(json.dumps(to_json(program)))) == program


def test_a_value_without_a_spec_can_be_printed() -> None:
    program = Program("broken", "n150", {}, (Op("Copy", ("x",), ("y",)),), ("x",), ("y",))
    assert ": ?" in to_text(program)


def test_specs_of_every_rank_are_shown() -> None:
    program = Program("p", "n150", {"s": TensorSpec(()), "z": TensorSpec((0, 3))}, ())
    assert "value %s : bfloat16[] tile dram" in to_text(program)
