"""What a loaded graph tells the profiler about its calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from temper.compiler.pipeline import Built
from temper.cost import ProgramCost, estimate
from temper.cost.constants import correction

# What a first call does that later ones find done, beside the compile's stages.
LOAD, CONST_EVAL = "load", "const-eval"


class CallRecorder:
    """Makes the program known to a recorder once, then notes each call as one event."""

    def __init__(self, built: Built, basis: str = "modelled") -> None:
        self._built, self._basis = built, basis
        program = built.program
        # One handle for untraced calls and one for replays; they belong to one recorder.
        self._handles: dict[bool, tuple[Any, int]] = {}
        self._moved = [
            (way, sum(program.spec(n).size_bytes for n in names), f"{program.name} {way}")
            for way, names in (("in", program.inputs), ("out", program.outputs))
        ]

    def record(
        self,
        active: Any,
        cost: ProgramCost,
        started: int,
        ended: int,
        *,
        first: bool,
        replay: int,
        once: Mapping[str, float] | None = None,
    ) -> None:
        """One call; ``replay`` counts replays of the trace, 0 for a call without.

        ``once`` are seconds that the first call spent on what later ones find done.
        """
        replayed = replay > 0
        handle = self._handles.get(replayed)
        if handle is None or handle[0] is not active:
            handle = (active, active.begin_program(self._built.program, cost, self._meta()))
            self._handles[replayed] = handle
            if first:
                self._first(active, started, once or {})
        active.record_call(
            handle[1], started, ended, first_call=first, traced=replayed, replay=replay
        )
        for way, size, name in self._moved:
            at = started if way == "in" else ended
            modelled = cost.transfer_in_ns if way == "in" else cost.transfer_out_ns
            active.transfer(way, size, at, at, modelled, name)

    def _meta(self) -> dict[str, Any]:
        options = self._built.options.provenance()
        return {
            "basis": self._basis,
            "cost_data": correction(),
            "call_site": list(self._built.captured.call_site),
            "options": {name: [v["value"], v["from"]] for name, v in options.items()},
            "passes": [[p.name, p.hits, p.seconds] for p in self._built.passes],
            "seeds": {"torch": torch.initial_seed()},
        }

    def _first(self, active: Any, started: int, once: Mapping[str, float]) -> None:
        """Spans of what is done once; const-eval on the device is a program of its own."""
        stages = self._built.stages
        begin = started - int(sum(stages.values()) * 1e9)
        _spans(active, stages, begin, "compile")
        program = self._built.program
        on_device = program.const_eval_place == "device"
        _spans(active, {k: s for k, s in once.items() if not on_device or k != CONST_EVAL}, started)
        if program.const_ops and on_device:
            part = program.replace(
                name=f"{program.name} {CONST_EVAL}",
                ops=program.const_ops,
                const_ops=(),
                inputs=(),
                outputs=(),
            )
            handle = active.begin_program(part, estimate(part), self._meta())
            active.record_call(handle, started, started, first_call=True, const_eval=True)


def _spans(active: Any, stages: Mapping[str, float], at: int, category: str = "once") -> None:
    """Stages one after the other, from ``at`` on."""
    for name, seconds in stages.items():
        end = at + int(seconds * 1e9)
        active.span(name, at, end, category)
        at = end
