"""Device memory over one call of a program: who holds what, from which op to which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from temper.program import Program


@dataclass(frozen=True, slots=True)
class Holding:
    """A value in device memory from op ``first`` to op ``last``, both included."""

    name: str
    pool: str  # dram or sram
    size_bytes: int
    first: int
    last: int
    module: str  # of the op that made it; a weight's own name


def holdings(program: Program) -> Sequence[Holding]:
    """Every value of the program that lies on the device, weights for the whole call."""
    end = max(0, len(program.ops) - 1)
    made: dict[str, tuple[int, str]] = dict.fromkeys(program.inputs, (0, "input"))
    made |= {name: (0, path) for name, path in program.weights.items()}
    for index, op in enumerate(program.ops):
        for name in op.outputs:
            made.setdefault(name, (index, op.source.module or op.kind))
    last = program.last_use()
    found = []
    for name, (first, module) in made.items():
        spec = program.values.get(name)
        if spec is None or spec.memory.buffer == "host":
            continue
        until = end if name in program.weights else min(last.get(name, first), end)
        found.append(Holding(name, spec.memory.buffer, spec.size_bytes, first, until, module))
    return found


def usage(program: Program, pool: str) -> np.ndarray:
    """Bytes held in ``pool`` while each op runs."""
    steps = np.zeros(len(program.ops) + 1, dtype=np.int64)
    for held in holdings(program):
        if held.pool == pool and len(program.ops):
            steps[held.first] += held.size_bytes
            steps[held.last + 1] -= held.size_bytes
    used: np.ndarray = np.cumsum(steps)[:-1]
    return used


@dataclass(frozen=True, slots=True)
class HighWater:
    """The fullest moment of a pool, and the largest holders then."""

    pool: str
    size_bytes: int
    op: int
    holders: Sequence[Holding]


def high_water(program: Program, pool: str, *, top: int = 5) -> HighWater:
    used = usage(program, pool)
    if not len(used):
        return HighWater(pool, 0, 0, ())
    at = int(used.argmax())
    live = [h for h in holdings(program) if h.pool == pool and h.first <= at <= h.last]
    live.sort(key=lambda held: -held.size_bytes)
    return HighWater(pool, int(used[at]), at, live[:top])
