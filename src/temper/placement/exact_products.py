"""Products of bfloat16 in full where that takes no time, for programs that carry state.

ttnn computes products at HiFi2, which cuts the last bit of the activations off; what a language
model writes into its cache with that error is read at every later token. A decode step waits for
its weights from DRAM, so the phase that is left out would have cost nothing.
"""

from __future__ import annotations

from dataclasses import replace

from temper.chips import ARCHITECTURES, Chip
from temper.cost import estimate_op
from temper.program.op import Op
from temper.program.program import Program

# HiFi3 leaves out the product of both low parts alone, which hardly a bfloat16 result shows.
_FULL = ("HiFi4", "HiFi3")
_CUT = frozenset({"LoFi", "HiFi2"})
# What an op may grow by and still count as equally fast.
_SAME = 1.01


def exact_products(program: Program, chip: Chip) -> Program:
    """The placed program with full products wherever they are free."""
    return program.replace(ops=tuple(_full(op, program, chip) for op in program.ops))


def _full(op: Op, program: Program, chip: Chip) -> Op:
    if not op.info.matrix or op.attrs.get("fidelity") not in _CUT:
        return op
    inputs = [program.values[name] for name in op.inputs]
    outputs = [program.values[name] for name in op.outputs]
    if any(spec.format != "bfloat16" for spec in inputs[:2]):
        return op  # weights of fewer bits were asked for, and err by more
    before = estimate_op(op, inputs, outputs, chip).kernel_ns
    # Into a float32 Dest the arch's own best: see exact_fidelity.
    best = ARCHITECTURES[chip.arch].exact_fidelity if op.attr("fp32_acc") else _FULL[0]
    for fidelity in dict.fromkeys((best, _FULL[1])):
        full = replace(op, attrs={**op.attrs, "fidelity": fidelity})
        if estimate_op(full, inputs, outputs, chip).kernel_ns <= before * _SAME:
            return full
    return op
