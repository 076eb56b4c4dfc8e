"""How many parts of the batch, and how far: by the modelled time of the whole and of one part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from temper.errors import OutOfMemoryError
from temper.placement.batch_parts import Parts, cut_batch
from temper.placement.emit import Plan
from temper.placement.pieces import Meter, Piece
from temper.program.op import Op
from temper.program.program import Program
from temper.program.tensor import divisors

Planner = Callable[[Program], Plan]

# Ops of a program in parts: planning time and the trace grow with them.
_MOST_OPS = 4096
# A cut must promise this share of the time to be planned at all.
_WORTH = 0.02


@dataclass(frozen=True)
class _Promise:
    parts: Parts
    end: int
    time_ns: float


def in_parts(program: Program, whole: Plan, planner: Planner, meter: Meter) -> Plan:
    """A plan that runs the first ops on parts of the batch where that is faster, else the whole.

    One part is planned for each number of parts; where to join follows from both plans' times.
    """
    best: _Promise | None = None
    batch = program.spec(program.inputs[0]).shape[:1] if program.inputs else ()
    for number in divisors(batch[0])[1:] if batch else []:
        found = cut_batch(program, number)
        if found is None or number * len(program.ops) > _MOST_OPS:
            continue
        promise = _promise(found, whole, planner, meter)
        if promise is None:
            continue
        if best is not None and promise.time_ns >= best.time_ns:
            break  # smaller parts only fill the cores less
        best = promise
    if best is None or best.time_ns > (1 - _WORTH) * whole.time_ns:
        return whole
    try:
        plan = planner(best.parts.build(best.end))
    except OutOfMemoryError:
        return whole
    plan.parts = best.parts.parts
    return min((whole, plan), key=lambda made: made.time_ns)


def _promise(parts: Parts, whole: Plan, planner: Planner, meter: Meter) -> _Promise | None:
    ends = parts.ends()
    if not ends:
        return None
    try:
        part = planner(parts.build(ends[-1], first_only=True))
    except OutOfMemoryError:
        return None
    after, after_part = _after(whole), _after(part)
    best: _Promise | None = None
    for end in ends:
        name = parts.program.ops[end - 1].outputs[0]
        time_ns = (
            parts.parts * after_part[parts.name(name, 0)]
            + (whole.time_ns - after[name])
            + sum(_join_ns(parts, joined, meter) for joined in parts.joined(end))
        )
        if best is None or time_ns < best.time_ns:
            best = _Promise(parts, end, time_ns)
    return best


def _after(plan: Plan) -> dict[str, float]:
    """Modelled time until each value of the plan's program is made."""
    return {
        name: choice.before.cost_ns + choice.way.run_ns
        for choice in plan.choices
        for name in plan.source.ops[choice.index].outputs
    }


def _join_ns(parts: Parts, name: str, meter: Meter) -> float:
    spec = parts.program.spec(name)
    part = parts.part_spec(name)
    op = Op("Concat", ("x",) * parts.parts, ("y",), {"dim": parts.dim(name)})
    given = (part,) * parts.parts
    return meter.measure(Piece(op, f"Concat{parts.dim(name)}", (), given, (spec,)))[0]
