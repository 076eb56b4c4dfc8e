"""What a loaded graph tells the profiler about its calls."""

from __future__ import annotations

from typing import Any

import torch

from temper.compiler.pipeline import Built
from temper.cost import ProgramCost, estimate


class CallRecorder:
    """Makes the program known to a recorder once, then notes each call as one event."""

    def __init__(self, built: Built) -> None:
        self._built = built
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
    ) -> None:
        """One call; ``replay`` counts replays of the trace, 0 for a call without."""
        replayed = replay > 0
        handle = self._handles.get(replayed)
        if handle is None or handle[0] is not active:
            handle = (active, active.begin_program(self._built.program, cost, self._meta()))
            self._handles[replayed] = handle
            if first:
                self._first(active, started, ended)
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
            "options": {name: [v["value"], v["from"]] for name, v in options.items()},
            "passes": [[p.name, p.hits, p.seconds] for p in self._built.passes],
            "seeds": {"torch": torch.initial_seed()},
        }

    def _first(self, active: Any, started: int, ended: int) -> None:
        """Spans of the compile, and the const-eval part as a program of its own."""
        stages = self._built.stages
        at = started - int(sum(stages.values()) * 1e9)
        for name, seconds in stages.items():
            active.span(name, at, at + int(seconds * 1e9), "compile")
            at += int(seconds * 1e9)
        active.span("first call: upload and const-eval", started, ended, "host")
        program = self._built.program
        if program.const_ops:
            once = program.replace(
                name=f"{program.name} const-eval",
                ops=program.const_ops,
                const_ops=(),
                inputs=(),
                outputs=(),
            )
            handle = active.begin_program(once, estimate(once), self._meta())
            active.record_call(handle, started, started, first_call=True, const_eval=True)
