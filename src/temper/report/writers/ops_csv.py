"""The ops CSV: one row for each op as executed, in the seed's columns or the newer ones.

Rows of one op differ in a few numbers only, so each program becomes one byte template that is
filled for many calls at once: a million rows take seconds and a few megabytes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from temper.files import replacing
from temper.record.events import Flag, Kind
from temper.run.columns import Style, firmware_ns, kernel_ns, static_cells
from temper.run.csv_columns import DYNAMIC, OF_DEVICE, TRACE
from temper.run.records import ProcessRun, ProgramRecord, Run, dumps
from temper.run.timeline import timeline

# Rows formatted together: large enough to amortise, small enough to stay in a few megabytes.
_ROWS_AT_ONCE = 4096
# Characters of the private use area mark the holes of a template.
_HOLE, _NOTHING = "\ue000", "\ue001"
# tt-metal has a column group for every tensor of the widest op; a concat of hundreds is cut here.
_MAX_TENSORS = 16


def write_ops_csv(run: Run, path: Path, *, newer: bool = False, chip_last: bool = False) -> None:
    """Write every executed op of every process, process by process.

    ``chip_last`` names the chip in a column after the seed's, for a file that stands alone.
    """
    style = _style(run, newer, chip_last)
    columns = style.columns
    base = min((_start(process) for process in run.processes), default=0)
    with replacing(path) as file:
        file.write(_line(columns))
        executed = 0
        for process in run.processes:
            for block in _process_rows(process, style, columns, base, executed):
                file.write(block)
            executed += process.op_count


def _style(run: Run, newer: bool, chip_last: bool) -> Style:
    infos = [info for record in run.records for info in record.ops]
    inputs = max((len(info.inputs) for info in infos), default=0)
    outputs = max((len(info.outputs) for info in infos), default=0)
    sizes = min(max(inputs, 2), _MAX_TENSORS), min(max(outputs, 1), _MAX_TENSORS)
    return Style(newer, *sizes, chip_last)


def _start(process: ProcessRun) -> int:
    return int(process.events["start_ns"].min()) if len(process.events) else 0


def _line(cells: list[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8", "surrogateescape")


def _process_rows(
    process: ProcessRun, style: Style, columns: list[str], base: int, executed: int
) -> Iterator[bytes]:
    calls, line = process.calls, timeline(process)
    marks = process.of_kind(Kind.MARK)
    marks = marks[np.argsort(marks["start_ns"], kind="stable")]
    templates: dict[tuple[int, int], _Template] = {}
    cuts = _runs_of_same_program(process, marks)
    idle = _idle_before(process, line.start_ns)
    done = 0
    for first, last in cuts:
        before = calls["start_ns"][first]
        while done < len(marks) and marks["start_ns"][done] <= before:
            yield _signpost(
                process.name(marks["ref"][done]), marks["start_ns"][done] - base, columns
            )
            done += 1
        handle, flags = int(calls["ref"][first]), int(calls["flags"][first])
        key = (handle, flags & (Flag.TRACED | Flag.CONST_EVAL))
        template = templates.get(key)
        if template is None:
            template = templates[key] = _Template(process.programs[handle], style, columns, flags)
        if not template.rows:
            continue
        step = max(1, _ROWS_AT_ONCE // template.rows)
        for start in range(first, last, step):
            some = slice(start, min(start + step, last))
            host = _host_times(process, some, process.programs[handle], base)
            yield template.fill(
                executed + line.first_op[some],
                host,
                line.start_ns[some],
                idle[some],
                calls["value"][some],
            )
    for mark in marks[done:]:
        yield _signpost(process.name(mark["ref"]), mark["start_ns"] - base, columns)


def _runs_of_same_program(process: ProcessRun, marks: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of consecutive calls with one program and flags, not crossed by a mark."""
    calls = process.calls
    if not len(calls):
        return []
    key = calls["ref"].astype(np.int64) * 256 + (calls["flags"] & ~np.uint8(Flag.FIRST))
    breaks = np.flatnonzero(key[1:] != key[:-1]) + 1
    at_marks = np.searchsorted(calls["start_ns"], marks["start_ns"])
    own_times = np.searchsorted(
        process.call_indices, np.fromiter(process.op_host_ns, np.int64, len(process.op_host_ns))
    )
    edges = np.unique(
        np.concatenate(([0], breaks, at_marks, own_times, own_times + 1, [len(calls)]))
    )
    edges = edges[edges <= len(calls)]
    return [(int(a), int(b)) for a, b in pairwise(edges)]


def _host_times(process: ProcessRun, some: slice, record: ProgramRecord, base: int) -> np.ndarray:
    """Start of each op on the host and the end of the last: (calls, rows + 1).

    Measured op by op where the runtime did so; else the call's time is shared out evenly.
    """
    calls = process.calls[some]
    start = (calls["start_ns"] - base).astype(np.int64)[:, None]
    length = (calls["end_ns"] - calls["start_ns"]).astype(np.int64)[:, None]
    own = process.op_host_ns.get(int(process.call_indices[some.start]))
    rows = len(record.ops)
    times: np.ndarray
    if own is not None and len(own) == len(record.infos) and len(calls) == 1:
        taken = np.asarray(own, dtype=np.int64)[record.launched]
        times = start + np.concatenate(([0], np.cumsum(taken)))[None, :]
    else:
        times = start + length * np.arange(rows + 1, dtype=np.int64)[None, :] // rows
    return times


def _idle_before(process: ProcessRun, starts: np.ndarray) -> np.ndarray:
    """Modelled time from the last kernel of the call before to the start of each call."""
    if not len(starts):
        return starts
    last = np.zeros(max(process.programs) + 1)
    for handle, record in process.programs.items():
        last[handle] = record.schedule.end_ns[-1] if record.costs else 0.0
    ends = starts + last[process.calls["ref"]]
    idle: np.ndarray = starts - np.concatenate((starts[:1], ends[:-1]))
    return idle


def _signpost(name: str, time_ns: int, columns: list[str]) -> bytes:
    cells = {"OP CODE": _clean(name), "OP TYPE": "signpost", "HOST START TS": str(int(time_ns))}
    return _line([cells.get(column, "") for column in columns])


def _clean(text: str) -> str:
    """Control characters end rows early in line-based tools; none belongs in a cell."""
    return "".join(" " if c < " " or c in _UNWANTED else c for c in text)


_UNWANTED = frozenset({_HOLE, _NOTHING, "\x7f"})


class _Template:
    """One call of one program as bytes with holes for the numbers that change."""

    def __init__(self, record: ProgramRecord, style: Style, columns: list[str], flags: int) -> None:
        self.rows = len(record.ops)
        self._traced = bool(flags & Flag.TRACED)
        self._handle = record.handle
        schedule = record.schedule
        self._start = schedule.start_ns
        self._gap = schedule.gap_ns
        self._ghz = record.chip.clock_ghz
        self._firmware = np.array(
            [
                kernel_ns(cost) + firmware_ns(info.family)
                for info, cost in zip(record.ops, record.costs, strict=True)
            ],
            dtype=float,
        )
        self._is_host = np.array([info.is_host for info in record.ops], dtype=bool)
        holes = {*DYNAMIC, *(TRACE if self._traced else ())}
        # Says in every row whose times these are: the file may travel without its folder.
        own = record.meta.get("metadata")
        metadata = {"device_times": record.basis, **(own if isinstance(own, dict) else {})}
        lines = []
        for info, cost in zip(record.ops, record.costs, strict=True):
            cells = static_cells(
                info,
                cost,
                style,
                const_eval=bool(flags & Flag.CONST_EVAL),
                metadata=dumps(metadata),
            )
            empty = OF_DEVICE if info.is_host else frozenset()
            marked = [
                _HOLE if name in holes and name not in empty
                else _NOTHING if name in holes
                else _clean(cells.get(name, ""))
                for name in columns
            ]  # fmt: skip
            line = _line(marked).replace(b"%", b"%%")
            # A host op takes its numbers off the list too, and prints none of their digits.
            line = line.replace(_HOLE.encode(), b"%d").replace(_NOTHING.encode(), b"%.0a")
            lines.append(line)
        self._text = b"".join(lines)

    def fill(
        self,
        first_op: np.ndarray,
        host: np.ndarray,
        start_ns: np.ndarray,
        idle_ns: np.ndarray,
        replay: np.ndarray,
    ) -> bytes:
        calls = len(first_op)
        shape = (calls, self.rows)
        # tt-metal folds the device's number into the low ten bits; ours is device 0.
        count = (first_op[:, None] + np.arange(1, self.rows + 1)[None, :]) << 10
        begin = start_ns[:, None] + self._start[None, :]
        gap = np.broadcast_to(self._gap, shape).copy()
        gap[:, 0] = idle_ns + self._start[0]
        if int(first_op[0]) == 0:
            gap[0, 0] = 0.0
        gap = np.maximum(np.rint(gap), 0).astype(np.int64)
        cycle = np.rint(begin * self._ghz).astype(np.int64)
        end_cycle = cycle + np.rint(self._firmware * self._ghz).astype(np.int64)[None, :]
        parts = [count, host[:, :-1], host[:, 1:], host[:, 1:] - host[:, :-1]]
        parts += [cycle, end_cycle, gap, gap]
        if self._traced:
            parts += [np.full(shape, self._handle), np.broadcast_to(replay[:, None], shape)]
        values = np.stack(parts, axis=-1).astype(np.int64).ravel().tolist()
        return (self._text * calls) % tuple(values)
