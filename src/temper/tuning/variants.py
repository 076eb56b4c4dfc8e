"""Variants of a placed program: other weight formats, fidelity and accumulation, costed in place.

The program's passes and placement stay as they are, which makes a variant cost milliseconds; what
is finally chosen is compiled for real.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from temper.cost import ProgramCost, estimate
from temper.formats.names import canonical_format
from temper.program import Op, Program

# Names as override files have them, most exact first.
FORMATS = ("bf16", "bfp_bf8", "bfp_bf4")
# What the compiler looks through from a matmul to its weight. Prepared or folded convolution
# weights are none that it converts, even where ttnn runs the convolution as a matmul.
_LAYOUT_ONLY = frozenset({"Transpose", "Permute", "Reshape", "Typecast", "Concat", "Repeat"})


@dataclass(frozen=True)
class Unit:
    """Weights that change format together: one operand of a matmul, merged ones included."""

    value: str  # the program's value that matmuls read
    paths: tuple[str, ...]  # the model's parameters in it
    readers: tuple[int, ...]  # indices of the matmuls
    chain: tuple[int, ...]  # indices of the const ops that make it, in order
    elements: int

    @property
    def name(self) -> str:
        return self.paths[0] if len(self.paths) == 1 else " + ".join(self.paths)


def units(program: Program) -> list[Unit]:
    """Every matmul operand that comes from the model's weights alone, in the order of use."""
    made = {name: i for i, op in enumerate(program.const_ops) for name in op.outputs}
    readers: dict[str, list[int]] = {}
    for index, op in enumerate(program.ops):
        if op.kind == "Matmul" and len(op.inputs) > 1:
            readers.setdefault(op.inputs[1], []).append(index)
    found = []
    for value, users in readers.items():
        chain: set[int] = set()
        paths: list[str] = []
        waiting = [value]
        known = True
        while waiting:
            name = waiting.pop(0)
            if name in made:
                known = known and program.const_ops[made[name]].kind in _LAYOUT_ONLY
                chain.add(made[name])
                waiting += program.const_ops[made[name]].inputs
            elif name in program.weights:
                paths.append(program.weights[name])
            else:
                known = False
        spec = program.spec(value)
        # A vector is no weight that the compiler converts, nor is a constant of the graph.
        if known and paths and spec.format in ("bfloat16", "float32") and len(spec.shape) >= 2:
            elements = 1
            for size in spec.shape:
                elements *= size
            found.append(
                Unit(value, tuple(dict.fromkeys(paths)), tuple(users), tuple(sorted(chain)),
                     elements)
            )  # fmt: skip
    return found


def variant(
    program: Program,
    formats: Mapping[str, str] | None = None,
    fidelity: str | None = None,
    fp32_acc: bool | None = None,
) -> Program:
    """The program with values in other formats (by value name) and other compute attributes."""
    values = program.values
    if formats:
        changed = {
            name: replace(program.spec(name), format=canonical_format(fmt), layout="tile")
            for name, fmt in formats.items()
            if fmt != "bf16"
        }
        values = {**values, **changed}
    ops = program.ops
    if fidelity is not None or fp32_acc is not None:
        attrs: dict[str, Any] = {}
        if fidelity is not None:
            attrs["fidelity"] = fidelity
        if fp32_acc is not None:
            attrs["fp32_acc"] = fp32_acc
        ops = tuple(_changed(op, attrs) for op in ops)
    return program.replace(values=values, ops=ops)


def _changed(op: Op, attrs: Mapping[str, Any]) -> Op:
    return op.with_attrs(**attrs) if op.info.matrix and "fidelity" in op.attrs else op


def cost(program: Program, *, traced: bool) -> ProgramCost:
    return estimate(program, traced=traced)


def gains_ns(
    program: Program, found: list[Unit], traced: bool, formats: tuple[str, ...] = FORMATS
) -> dict[str, dict[str, float]]:
    """Modelled call time with one unit in one format, by unit and format."""
    base = estimate(program, traced=traced).call_ns
    table: dict[str, dict[str, float]] = {}
    for unit in found:
        table[unit.value] = {}
        for fmt in formats:
            if fmt == "bf16":
                table[unit.value][fmt] = base
                continue
            changed = variant(program, {unit.value: fmt})
            table[unit.value][fmt] = estimate(changed, traced=traced).call_ns
    return table
