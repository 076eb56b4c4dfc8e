"""A program through ttnn against the virtual chip: op by op on equal inputs, and end to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from temper.formats.measures import pcc
from temper.options import Options
from temper.program import Program
from temper.targets.protocol import Load
from temper.targets.ttnn.client import checked
from temper.targets.ttnn.constants import array_of
from temper.targets.ttnn.plan import OpCalls, Upload, upload_json
from temper.targets.ttnn.target import TtnnProgram, TtnnTarget, server
from temper.targets.virtual.executor import Executor


@dataclass(frozen=True)
class Compared:
    """One value on both targets; ``good`` is whether it stays in the band."""

    name: str
    kind: str
    source: str
    pcc: float
    largest_error: float
    good: bool


@dataclass(frozen=True)
class VerifiedProgram:
    """A program's ops one by one, and its outputs end to end."""

    program: str
    mocked: bool
    ops: tuple[Compared, ...]
    outputs: tuple[Compared, ...]

    @property
    def first_bad(self) -> Compared | None:
        """The first op that leaves the band."""
        return next((op for op in self.ops if not op.good), None)


def verify(
    program: Program,
    weights: Mapping[str, torch.Tensor],
    options: Options,
    inputs: Sequence[torch.Tensor],
    *,
    floor: float = 0.99,
) -> VerifiedProgram:
    """Feed every op what the virtual chip fed it and compare; then the whole program."""
    target = TtnnTarget(program.chip)
    load = Load(program, weights, [None] * len(program.outputs), options)
    running = TtnnProgram(target, load)
    running.prepare()
    known = _values(program, weights, inputs)
    ops = tuple(
        made
        for number, step in enumerate(running.plan.steps)
        if step.kind not in ("Host", "PrepareConvWeight")
        for made in _step(target, running, program, number, step, known, floor)
    )
    expected = [known[name] for name in program.outputs]
    results = running.run(inputs, "first")
    outputs = tuple(
        _compared(name, "output", "", array_of(ours), array_of(theirs), floor)
        for name, ours, theirs in zip(program.outputs, expected, results, strict=True)
    )
    running.close()
    return VerifiedProgram(program.name, target.environment.mocked, ops, outputs)


def _values(
    program: Program, weights: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Every value of one call on the virtual chip, summed as the chip sums."""
    made = [name for op in program.ops for name in op.outputs]
    names = list(dict.fromkeys((*program.inputs, *made)))
    names = [n for n in names if program.spec(n).memory.buffer != "host"]
    whole = program.replace(outputs=tuple(names))
    return dict(
        zip(names, Executor(whole, weights, exact_accumulation=True).run(inputs), strict=True)
    )


def _step(
    target: TtnnTarget,
    running: TtnnProgram,
    program: Program,
    number: int,
    step: OpCalls,
    known: Mapping[str, torch.Tensor],
    floor: float,
) -> list[Compared]:
    given = [n for n in step.operands if n in known]
    uploads = [upload_json(Upload(n, n, program.spec(n).shape, program.spec(n))) for n in given]
    asked = {"do": "step", "program": running.number, "step": number, "operands": uploads}
    reply, made = server(target.environment).ask(asked, [array_of(known[n]) for n in given])
    checked(reply)
    return [
        _compared(name, step.kind, step.source, array_of(known[name]), theirs, floor)
        for (name, _), theirs in zip(step.checks, made, strict=True)
    ]


def _compared(name: str, kind: str, source: str, ours: Any, theirs: Any, floor: float) -> Compared:
    a = np.asarray(ours, np.float64).ravel()
    b = np.asarray(theirs, np.float64).ravel()
    found = float(pcc(a, b))
    worst = float(np.abs(a - b).max()) if a.size else 0.0
    good = bool(worst == 0.0 or found >= floor)
    return Compared(name, kind, source, found, worst, good)
