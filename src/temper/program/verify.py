"""Checks that a program is well formed: names, operands, attributes, shapes, memory of the chip."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from temper import chips
from temper.chips import Chip
from temper.errors import CompileError, UsageError
from temper.formats.names import FIDELITIES
from temper.program.op import KINDS, Op, OpKind, Specs
from temper.program.program import Program
from temper.program.tensor import TILE, TensorSpec

_SHOWN = 5


def verify(program: Program) -> None:
    """Raises CompileError with the first problems; says nothing about a sound program."""
    found = problems(program)
    if found:
        more = f"and {len(found) - _SHOWN} more" if len(found) > _SHOWN else None
        details = {f"at{i}": text for i, text in enumerate(found[:_SHOWN], start=1)}
        raise CompileError(f"program {program.name!r} is not well formed", **details, also=more)


def problems(program: Program) -> list[str]:
    """Everything that is wrong, in the order of the program; empty when it is sound."""
    return list(_problems(program))


def _problems(program: Program) -> Iterator[str]:
    try:
        chip: Chip | None = chips.get(program.chip)
    except UsageError:
        chip = None
        yield f"unknown chip {program.chip!r}"
    # A halo holds only the rows that its windows read: fewer than all where strides skip some.
    partial = {name for op in program.ops if op.kind in ("Halo", "Move") for name in op.outputs}
    for name, spec in program.values.items():
        for what in _spec_problems(spec, chip, whole=name not in partial):
            yield f"%{name}: {what}"
    yield from _name_problems(program)
    yield from _state_problems(program)
    for op in (*program.const_ops, *program.ops):
        for what in _op_problems(op):
            yield f"{_where(op)}: {what}"
        if op.kind in KINDS and all(name in program.values for name in (*op.inputs, *op.outputs)):
            for what in _shape_problems(op, program.input_specs(op), program.output_specs(op)):
                yield f"{_where(op)}: {what}"


def _shape_problems(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    rule = op.info.shapes
    if outputs and rule is not None:
        yield from rule(op, inputs, outputs)


def _name_problems(program: Program) -> Iterator[str]:
    """Every value is defined once, before it is used, and has a spec."""
    defined: set[str] = set()
    for name in (*program.inputs, *program.weights, *program.state):
        if name in defined:
            yield f"%{name} is given twice as input, weight or state"
        defined.add(name)
        if name not in program.values:
            yield f"%{name} has no spec"
    constant = set(program.weights)
    for op in program.const_ops:
        yield from _op_names(program, op, defined)
        for name in op.inputs:
            if name in defined and name not in constant:
                yield f"{_where(op)}: the const-eval part reads %{name}, which is no constant"
        constant.update(op.outputs)
    for op in program.ops:
        yield from _op_names(program, op, defined)
    for name in program.outputs:
        if name not in defined:
            yield f"the program returns %{name}, which nothing defines{_near(name, defined)}"


def _state_problems(program: Program) -> Iterator[str]:
    """A write in place needs state, in one spec; what it replaced is read by nobody after it."""
    current = set(program.state)
    stale: set[str] = set()
    for op in program.ops:
        for name in op.inputs:
            if name in stale:
                yield f"{_where(op)}: reads %{name}, which was overwritten before"
        if op.kind not in KINDS or not KINDS[op.kind].in_place or not (op.inputs and op.outputs):
            continue
        old, new = op.inputs[0], op.outputs[0]
        if old not in current:
            yield f"{_where(op)}: writes %{old}, which is no state of the program"
        elif program.values.get(old) != program.values.get(new):
            yield f"{_where(op)}: %{new} differs in spec from %{old}, whose memory it is"
        current.discard(old)
        current.add(new)
        stale.add(old)


def _op_names(program: Program, op: Op, defined: set[str]) -> Iterator[str]:
    for name in op.inputs:
        if name not in defined:
            yield f"{_where(op)}: %{name} is used before it is defined{_near(name, defined)}"
    for name in op.outputs:
        if name in defined:
            yield f"{_where(op)}: %{name} is defined twice"
        if name not in program.values:
            yield f"{_where(op)}: %{name} has no spec"
        defined.add(name)


def _op_problems(op: Op) -> Iterator[str]:
    kind = KINDS.get(op.kind)
    if kind is None:
        yield f"unknown kind of op {op.kind!r}{_near(op.kind, KINDS)}"
        return
    yield from _count_problems(op, kind)
    for name, value in op.attrs.items():
        if name not in kind.attrs:
            yield f"unknown attribute {name!r}{_near(name, kind.attrs)}"
        else:
            yield from _attribute_problems(name, value, kind.attrs[name])


def _count_problems(op: Op, kind: OpKind) -> Iterator[str]:
    least = sum(not operand.endswith(("?", "*")) for operand in kind.operands)
    most = None if any(o.endswith("*") for o in kind.operands) else len(kind.operands)
    if len(op.inputs) < least or (most is not None and len(op.inputs) > most):
        yield f"{len(op.inputs)} operands; {op.kind} takes {_range(least, most)}"
    least, most = kind.results
    if len(op.outputs) < least or (most is not None and len(op.outputs) > most):
        yield f"{len(op.outputs)} results; {op.kind} gives {_range(least, most)}"


def _attribute_problems(name: str, value: Any, default: Any) -> Iterator[str]:
    if name == "fidelity" and value not in FIDELITIES:
        yield f"fidelity is {value!r}; allowed are {' '.join(FIDELITIES)}"
    if default is None or value is None:
        return
    kinds: tuple[type, ...] = (type(default),)
    if isinstance(default, (list, tuple)):
        kinds = (list, tuple)
    elif isinstance(default, float) or (isinstance(default, int) and not isinstance(default, bool)):
        kinds = (int, float)
    wrong = not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
    if wrong and not (name in ("value", "start", "end", "step") and isinstance(value, bool)):
        yield f"attribute {name} is {value!r}; expected {kinds[0].__name__}"


def _spec_problems(spec: TensorSpec, chip: Chip | None, whole: bool) -> Iterator[str]:
    if any(size < 0 for size in spec.shape):
        yield f"the shape {spec.shape} has a negative size"
        return
    memory = spec.memory
    if chip is None or memory.buffer == "host":
        return
    if memory.grid is not None and memory.shard is not None:
        if min(*memory.grid, *memory.shard) < 1:
            yield f"grid {memory.grid} and shard {memory.shard} need sizes of at least 1"
            return
        if memory.buffer == "sram":
            yield from _shard_problems(spec, memory.grid, memory.shard, chip, whole)
    elif memory.buffer == "sram":
        yield from _too_large(spec.size_bytes, chip.sram_usable_bytes * chip.compute_cores, "SRAM")
    # What is too large for DRAM is told by the memory walk, with its arithmetic and ways out.


def _shard_problems(
    spec: TensorSpec, grid: tuple[int, int], shard: tuple[int, int], chip: Chip, whole: bool
) -> Iterator[str]:
    if grid[0] > chip.grid[0] or grid[1] > chip.grid[1]:
        yield f"the grid {_by(grid)} is larger than the chip's {_by(chip.grid)}"
    if spec.layout == "tile" and (shard[0] % TILE or shard[1] % TILE):
        yield f"the shard {_by(shard)} is not made of whole tiles"
    height, width = spec.physical_2d
    cores = grid[0] * grid[1]
    covered = {
        "height": (shard[0] * cores, shard[1]),
        "width": (shard[0], shard[1] * cores),
        "block": (shard[0] * grid[1], shard[1] * grid[0]),
    }[spec.memory.sharding]
    if whole and (covered[0] < height or covered[1] < width):
        yield f"shards cover {_by(covered)} of {_by((height, width))} values"
    size_bytes = int(shard[0] * shard[1] * spec.element_bytes)
    yield from _too_large(size_bytes, chip.sram_usable_bytes, "SRAM a core")


def _too_large(size_bytes: int, limit_bytes: int, what: str) -> Iterator[str]:
    if size_bytes > limit_bytes:
        yield f"{size_bytes} B are more than the chip's {limit_bytes} B of {what}"


def _where(op: Op) -> str:
    return f"%{op.outputs[0]} = {op.kind}" if op.outputs else op.kind


def _near(name: str, known: Sequence[str] | set[str] | Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, list(known), n=2)
    return f"; near: {', '.join(close)}" if close else ""


def _range(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"


def _by(pair: tuple[int, int]) -> str:
    return f"{pair[0]}x{pair[1]}"
