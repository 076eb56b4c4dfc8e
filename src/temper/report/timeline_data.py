"""Timelines for the page: lanes of segments, cut to what a browser can hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from temper.record.events import Kind
from temper.run.expand import blocks
from temper.run.opening import Profile
from temper.run.records import Run
from temper.run.table import OpTable

_MAX_SEGMENTS = 30_000


def timelines(profile: Profile) -> list[dict[str, Any]]:
    """The device's clock and the host's; of a card's CSV the device's alone."""
    if profile.run is None:
        return [_card_timeline(profile.table)]
    return [_device_timeline(profile.run), _host_timeline(profile.whole or profile.run)]


def _lane(name: str) -> dict[str, Any]:
    return {"name": name, "s": [], "d": [], "o": [], "t": []}


def _add(lane: dict[str, Any], start: float, end: float, op: int = -1, text: str = "") -> None:
    lane["s"].append(round(start))
    lane["d"].append(max(0, round(end) - round(start)))
    lane["o"].append(op)
    lane["t"].append(text)


def _device_timeline(run: Run) -> dict[str, Any]:
    lanes = []
    budget = _MAX_SEGMENTS // max(1, len(run.processes))
    shown = total = offset = 0
    for process in run.processes:
        several = f" (process {process.pid})" if len(run.processes) > 1 else ""
        device, link = _lane(f"device{several}"), _lane(f"link{several}")
        rows = {}
        for record in process.called:
            rows[record.handle] = offset
            offset += len(record.ops)
        for block in blocks(process, max_ops=budget):
            times = block.record.schedule
            base = rows[block.record.handle]
            for call in range(len(block.calls)):
                begin = float(block.call_start_ns[call])
                _add(link, begin + times.in_start_ns, begin + times.in_end_ns, -1, "inputs")
                _add(link, begin + times.out_start_ns, begin + times.out_end_ns, -1, "outputs")
                for index in range(len(block.record.ops)):
                    _add(
                        device, block.start_ns[call, index], block.end_ns[call, index], base + index
                    )
        shown += len(device["s"])
        total += process.op_count
        lanes += [device, link]
    note = f"first {shown:,} of {total:,} ops" if shown < total else ""
    return {"name": f"device, {run.basis} clock", "lanes": lanes, "note": note, "marks": []}


def _host_timeline(run: Run) -> dict[str, Any]:
    lanes, marks = [], []
    base = min((int(p.events["start_ns"].min()) for p in run.processes if len(p.events)), default=0)
    budget = _MAX_SEGMENTS // max(1, len(run.processes))
    cut = False
    for process in run.processes:
        name = f"process {process.pid}"
        calls, spans = _lane(f"{name}: calls"), _lane(f"{name}: spans")
        cut |= len(process.calls) > budget
        for event in process.calls[:budget]:
            text = process.programs[int(event["ref"])].program.name
            _add(calls, event["start_ns"] - base, event["end_ns"] - base, -1, text)
        for event in process.of_kind(Kind.SPAN)[:budget]:
            text = process.name(event["ref"])
            _add(spans, event["start_ns"] - base, event["end_ns"] - base, -1, text)
        for event in process.of_kind(Kind.MARK)[:1000]:
            marks.append([int(event["start_ns"]) - base, process.name(event["ref"])])
        lanes += [calls, spans]
    note = f"first {budget:,} calls of each process" if cut else ""
    return {"name": "host, measured wall clock", "lanes": lanes, "note": note, "marks": marks}


def _card_timeline(table: OpTable) -> dict[str, Any]:
    """Gaps and kernels one after the other, in the order of the file."""
    device = table.select(table.is_device)
    gap = np.nan_to_num(device.number("gap_ns"))
    kernel = np.nan_to_num(device.number("kernel_ns"))
    ends = np.cumsum(gap + kernel)
    shown = min(device.rows, _MAX_SEGMENTS)
    lane = _lane("device")
    code, bound = device.text("code"), device.text("bound")
    for row in range(shown):
        _add(lane, ends[row] - kernel[row], ends[row], -1, code[row])
    lane["b"] = [bound[row] for row in range(shown)]
    note = f"first {shown:,} of {device.rows:,} ops" if shown < device.rows else ""
    return {"name": f"device, {table.basis}", "lanes": [lane], "note": note, "marks": []}
