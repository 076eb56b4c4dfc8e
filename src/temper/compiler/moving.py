"""How much of a program's device time only moves data: what counts, and the share."""

from __future__ import annotations

from collections.abc import Iterable

from temper.cost import ProgramCost
from temper.program import Op, Program

# Ops whose results hold their operands' values as they are: other places, other layouts.
MOVING = frozenset({
    "Reshape", "Permute", "Transpose", "Slice", "Concat", "Pad", "Repeat", "Copy", "Tilize",
    "Untilize", "InterleavedToSharded", "ShardedToInterleaved", "Reshard", "CreateQkvHeads",
    "ConcatHeads",
})  # fmt: skip
# Lookups: a model's own table is work that the model asked for, an activation's rows are moved.
_LOOKUPS = {"Embeddings": 1, "Gather": 0}


def moves_data(op: Op, program: Program) -> bool:
    """Whether an op only moves data."""
    if op.kind in _LOOKUPS:
        table = op.inputs[_LOOKUPS[op.kind]]
        made = next((other for other in program.ops if table in other.outputs), None)
        # A model's own table may lie in SRAM: the copy is a move, the lookup is not.
        return made is not None and not (made.kind == "Copy" and _given(made.inputs[0], program))
    return op.kind in MOVING


def _given(name: str, program: Program) -> bool:
    """Whether no op of a call makes a value."""
    return not any(name in op.outputs for op in program.ops)


def moving_share(programs: Iterable[tuple[Program, ProgramCost]]) -> float:
    """Modelled time of ops that move data over the device time of a warm call, 0 to 1."""
    moving = total = 0.0
    for program, cost in programs:
        for op, one in zip(program.ops, cost.ops, strict=True):
            if one.bound == "host":
                continue
            spent = one.kernel_ns + one.gap_ns if one.kernel_ns else 0.0
            total += spent
            moving += spent if moves_data(op, program) else 0.0
    return moving / total if total else 0.0
