"""The text form of a program: one line for each op, made for reading.

    program mnist on n150
    option optimization_level = 2
    input %x : bfloat16[64,784] tile dram
    weight %w "fc1.weight" : bfloat8_b[784,128] tile dram
    state %k "layers.0.keys" : bfloat8_b[1,8,2048,128] tile dram
    %3 = Matmul(%x, %w) {fidelity=HiFi2} : bfloat16[64,128] tile dram  # module fc1 model.py:12
    return %3

Ops of the const-eval part start with `const`; values that nothing defines with `value`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from temper.errors import TemperError
from temper.program.op import KINDS, Op, Source
from temper.program.program import Program
from temper.program.tensor import TensorSpec

# A string that may stand without quotes.
_WORD = re.compile(r"[A-Za-z_][\w.]*\Z", re.ASCII)
_NAME = re.compile(r"[\w.$]+\Z", re.ASCII)
_PLACE = re.compile(r"[^\s\"#:]+\Z")
_KEYWORDS = frozenset({"true", "false", "null", "inf", "nan"})


def to_text(program: Program) -> str:
    """The program as text, for people; `archive` and `codec` are for machines."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    yield f"program {_literal(program.name)} on {_literal(program.chip)}"
    for name, value in program.options.items():
        yield f"option {_literal(name)} = {_literal(value)}"
    shown = {*program.inputs, *program.weights, *program.state}
    for name in program.inputs:
        yield f"input {_value(name)} : {_spec(program, name)}"
    for name, path in program.weights.items():
        yield f"weight {_value(name)} {json.dumps(path)} : {_spec(program, name)}"
    for name, path in program.state.items():
        yield f"state {_value(name)} {json.dumps(path)} : {_spec(program, name)}"
    for op in (*program.const_ops, *program.ops):
        shown.update(op.outputs)
    for name in program.values:
        if name not in shown:
            yield f"value {_value(name)} : {_spec(program, name)}"
    for op in program.const_ops:
        yield "const " + _op(program, op)
    for op in program.ops:
        yield _op(program, op)
    yield "return " + ", ".join(map(_value, program.outputs))


def _op(program: Program, op: Op) -> str:
    outputs = ", ".join(map(_value, op.outputs))
    labels = [_operand_label(op, index) for index in range(len(op.inputs))]
    operands = ", ".join(
        f"{label}={_value(name)}" if label else _value(name)
        for label, name in zip(labels, op.inputs, strict=True)
    )
    line = f"{outputs} = {op.kind}({operands})" if op.outputs else f"{op.kind}({operands})"
    if op.attrs:
        line += " " + _braces(op.attrs)
    if op.outputs:
        line += " : " + ", ".join(_spec(program, name) for name in op.outputs)
    return line + _source(op.source)


def _spec(program: Program, name: str) -> str:
    spec = program.values.get(name)
    return "?" if spec is None else spec_text(spec)


def spec_text(spec: TensorSpec) -> str:
    """``bfloat16[64,128] tile sram height grid=8x8 shard=32x128``."""
    words = [f"{spec.format}[{','.join(map(str, spec.shape))}]", spec.layout, spec.memory.buffer]
    if spec.memory.sharded and spec.memory.grid and spec.memory.shard:
        grid, shard = spec.memory.grid, spec.memory.shard
        words += [spec.memory.sharding, f"grid={grid[0]}x{grid[1]}", f"shard={shard[0]}x{shard[1]}"]
    return " ".join(words)


def _source(source: Source) -> str:
    words = []
    if source.module:
        words += ["module", _place(source.module)]
    if source.file or source.line:
        words.append(f"{_place(source.file)}:{source.line}")
    return "  # " + " ".join(words) if words else ""


def _place(text: str) -> str:
    return text if _PLACE.match(text) and text != "module" else json.dumps(text)


def _value(name: str) -> str:
    return "%" + (name if _NAME.match(name) else json.dumps(name))


def _braces(values: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{_literal(k)}={_literal(v)}" for k, v in values.items()) + "}"


def _literal(value: Any) -> str:
    """JSON with bare words, ``inf`` and ``nan``."""
    if isinstance(value, str):
        return value if _WORD.match(value) and value not in _KEYWORDS else json.dumps(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, Mapping):
        return _braces(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise TemperError(f"an attribute of type {type(value).__name__} has no text form: {value!r}")


def _operand_label(op: Op, index: int) -> str:
    """The name of an optional operand, e.g. ``bias``; required ones need none."""
    named = op.attrs.get("operands")
    if isinstance(named, list) and len(named) == len(op.inputs):
        label = named[index]
        return label if index and isinstance(label, str) and _WORD.match(label) else ""
    kind = KINDS.get(op.kind)
    if kind is None or index >= len(kind.operands):
        return ""
    operand = kind.operands[index]
    return operand[:-1] if operand.endswith("?") else ""
