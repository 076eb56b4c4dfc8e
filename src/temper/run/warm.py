"""The warm calls of a run: what it does again and again, without what is paid once.

A run also holds constant evaluation and calls before a trace was recorded. How much these weigh
depends on how long the run was, so figures of one call are taken from the warm ones alone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from temper.record.events import Flag, Kind
from temper.run.records import ProcessRun, Run, call_flags


def warm_run(run: Run) -> tuple[Run, int]:
    """The run with its warm calls only, and how many times the whole model was called in them.

    A model of several graphs calls each of them once; the one called most often counts.
    """
    calls: dict[str, int] = defaultdict(int)
    processes = []
    for process in run.processes:
        chosen = _warm_programs(process)
        events = process.events
        keep = (events["kind"] != Kind.CALL) | np.isin(events["ref"], list(chosen))
        kept = replace(process, events=events[keep], op_host_ns={})
        for handle in kept.calls["ref"].tolist():
            calls[kept.programs[handle].program.name] += 1
        processes.append(kept)
    return replace(run, processes=processes), max(calls.values(), default=0)


def _warm_programs(process: ProcessRun) -> set[int]:
    """Of each program the traced form, where there is one; constant evaluation is never warm."""
    forms: dict[str, dict[bool, set[int]]] = {}
    for handle in np.unique(process.calls["ref"]).tolist():
        calls = process.calls[process.calls["ref"] == handle]
        if not call_flags(calls, Flag.CONST_EVAL).all():
            traced = bool(call_flags(calls, Flag.TRACED).any())
            name = process.programs[handle].program.name
            forms.setdefault(name, {}).setdefault(traced, set()).add(handle)
    return {handle for form in forms.values() for handle in form[max(form)]}
