"""Which calls of a run a figure is about: the warm ones, the first ones, or all of them.

A run also holds what is paid once: const-eval on the device, calls before a trace was recorded,
first calls that build programs. How much these weigh depends on how long the run was, so figures
are taken from the warm calls unless somebody asks for others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from temper.errors import UsageError
from temper.record.events import Flag, Kind
from temper.run.records import MEASURED, ProcessRun, Run, call_flags

WARM, FIRST, ALL = "warm", "first", "all"
CALLS = (WARM, FIRST, ALL)


def choose_calls(run: Run, calls: str) -> tuple[Run, int]:
    """The run with the chosen calls only, and how many times the whole model was called in them.

    A model of several graphs calls each of them once; the one called most often counts. A run
    without a warm call shows its first calls, whose device times are those of a warm one.
    """
    counts: dict[str, int] = defaultdict(int)
    processes = []
    for process in run.processes:
        kept = process if calls == ALL else _keep(process, _chosen(process, calls))
        processes.append(kept)
        for event in kept.calls:
            if not event["flags"] & Flag.CONST_EVAL:
                counts[kept.programs[int(event["ref"])].program.name] += 1
    return replace(run, processes=processes), max(counts.values(), default=0)


def one_call(run: Run) -> Run | None:
    """The run with one call of each program, the one of median wall time; None where programs were
    called differently often, so that no one call is the whole model's."""
    processes = []
    counts = set()
    for process in run.processes:
        calls, chosen = process.calls, []
        for record in process.called:
            own = np.flatnonzero(calls["ref"] == record.handle)
            counts.add(len(own))
            wall = calls["end_ns"][own] - calls["start_ns"][own]
            chosen.append(int(own[np.argsort(wall, kind="stable")[(len(own) - 1) // 2]]))
        processes.append(_keep(process, process.call_indices[np.array(sorted(chosen), dtype=int)]))
    return replace(run, processes=processes) if len(counts) == 1 else None


def between_marks(run: Run, start: str, end: str) -> Run:
    """The run with the calls after its first mark ``start`` and before the next mark ``end``."""
    processes = []
    seen: list[str] = []
    for process in run.processes:
        marks = process.of_kind(Kind.MARK)
        names = [process.name(ref) for ref in marks["ref"]]
        seen += names
        at = dict(reversed([*zip(names, marks["start_ns"].tolist(), strict=True)]))
        if (start and start not in at) or (end and end not in at):
            continue
        begin = at[start] if start else 0
        later = [
            t for n, t in zip(names, marks["start_ns"].tolist(), strict=True)
            if n == end and (not start or t > begin)
        ]  # fmt: skip
        stop = later[0] if later else (begin if end else np.iinfo(np.int64).max)
        calls = process.calls
        inside = (calls["start_ns"] >= begin) & (calls["start_ns"] < stop)
        processes.append(_keep(process, process.call_indices[inside]))
    if not processes:
        wanted = " and ".join(repr(name) for name in (start, end) if name)
        raise UsageError(
            f"no process has the signpost {wanted}", found=", ".join(dict.fromkeys(seen)) or "none"
        )
    return replace(run, processes=processes)


def _chosen(process: ProcessRun, calls: str) -> np.ndarray:
    """Positions in the process's events of the calls to keep."""
    found, events = process.call_indices, process.calls
    first = call_flags(events, Flag.FIRST)
    if calls == FIRST:
        chosen: np.ndarray = found[first]
        return chosen
    warm = np.isin(events["ref"], list(_warm_programs(process)))
    names = np.array([process.programs[int(ref)].program.name for ref in events["ref"]], dtype=str)
    again = np.isin(names, np.unique(names[warm & ~first]))
    chosen = found[warm & ~(first & again)]
    return chosen


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


def _keep(process: ProcessRun, chosen: np.ndarray) -> ProcessRun:
    """The process with those calls and their transfers; spans and marks stay."""
    events = process.events
    keep = events["kind"] != Kind.CALL
    keep[chosen] = True
    transfers = np.flatnonzero(np.isin(events["kind"], (Kind.TRANSFER_IN, Kind.TRANSFER_OUT)))
    calls = events[chosen]
    if len(calls):
        # A transfer belongs to the call that it touches.
        before = np.searchsorted(calls["start_ns"], events["end_ns"][transfers], "right") - 1
        touches = (before >= 0) & (calls["end_ns"][before] >= events["start_ns"][transfers])
        keep[transfers] = touches
    else:
        keep[transfers] = False
    return replace(process, events=events[keep], op_host_ns={})


@dataclass(frozen=True)
class OneTime:
    """Work that a run did once, and where: on the host before or in a first call, or on the chip"""

    name: str
    place: str  # host or device
    basis: str
    time_ns: float
    ops: int = 0  # of the device


def one_time_work(run: Run) -> list[OneTime]:
    """Compiling, loading and const-eval: measured on the host, or the device's own time."""
    found: dict[tuple[str, str, str], tuple[float, int]] = {}
    for process in run.processes:
        for key, time_ns, ops in (*_host_work(process), *_device_work(process)):
            before = found.get(key, (0.0, 0))
            found[key] = before[0] + time_ns, before[1] + ops
    return [OneTime(*key, time_ns, ops) for key, (time_ns, ops) in found.items()]


_Work = tuple[tuple[str, str, str], float, int]


def _host_work(process: ProcessRun) -> Iterator[_Work]:
    for event in process.of_kind(Kind.SPAN):
        if process.name(event["other"]) in ("compile", "once"):
            key = process.name(event["ref"]), "host", MEASURED
            yield key, float(event["end_ns"] - event["start_ns"]), 0


def _device_work(process: ProcessRun) -> Iterator[_Work]:
    once = process.calls[call_flags(process.calls, Flag.CONST_EVAL)]
    for handle in once["ref"].tolist():
        record = process.programs[handle]
        time_ns = sum(cost.kernel_ns for cost in record.costs if cost.bound != "host")
        yield ("const-eval", "device", record.basis), time_ns, len(record.costs)
