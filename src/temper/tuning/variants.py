"""Variants of a placed program: other weight formats, fidelity and accumulation, costed in place.

The program's passes and placement stay as they are, which makes a variant cost milliseconds; what
is finally chosen is compiled for real.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from temper.cost import ProgramCost, estimate
from temper.formats.names import canonical_format
from temper.program import Op, Program
from temper.program.weights import matmul_weights

# Names as override files have them, most exact first.
FORMATS = ("bf16", "bfp_bf8", "bfp_bf4")


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
    return [
        Unit(w.value, w.paths, w.readers, w.chain, math.prod(program.spec(w.value).shape))
        for w in matmul_weights(program)
        if program.spec(w.value).format in ("bfloat16", "float32")
    ]


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
    """Modelled cost of one call."""
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
