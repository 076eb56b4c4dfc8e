"""A warm call as Chrome's trace events, and warm calls as folded stacks by module."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from temper.files import write_text
from temper.run.calls import WARM, choose_calls
from temper.run.records import Run, dumps


def write_chrome_trace(run: Run, path: Path) -> None:
    """One call of each program that warm calls run: ops, gaps and transfers of the device clock."""
    events: list[dict[str, Any]] = []
    warm, _ = choose_calls(run, WARM)
    for number, record in enumerate(warm.called):
        basis, plan = record.basis, record.schedule
        name = f"{record.program.name}, {basis} device clock"
        events.append({"ph": "M", "pid": number, "name": "process_name", "args": {"name": name}})
        for thread, label in enumerate(("device", "link")):
            named = {"name": label}
            events.append(
                {"ph": "M", "pid": number, "tid": thread, "name": "thread_name", "args": named}
            )
        for way, start, end in (
            ("inputs", plan.in_start_ns, plan.in_end_ns),
            ("outputs", plan.out_start_ns, plan.out_end_ns),
        ):
            if end > start:
                events.append(_span(way, "transfer", number, 1, start, end - start, {}))
        for info, cost, start in zip(record.ops, record.costs, plan.start_ns, strict=True):
            details = {
                "module": info.op.source.module, "where": info.location, "bound": cost.bound,
                "cores": cost.cores, "low_ns": cost.low_ns, "high_ns": cost.high_ns, "basis": basis,
            }  # fmt: skip
            kind = "host" if info.is_host else "device"
            events.append(_span(info.name, kind, number, 0, float(start), cost.kernel_ns, details))
    write_text(path, dumps({"displayTimeUnit": "ns", "traceEvents": events}))


def _span(
    name: str, kind: str, process: int, thread: int, start_ns: float, length_ns: float,
    details: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    return {
        "ph": "X", "name": name, "cat": kind, "pid": process, "tid": thread,
        "ts": start_ns / 1e3, "dur": length_ns / 1e3, "args": details,
    }  # fmt: skip


def write_folded(run: Run, path: Path) -> None:
    """``model;layer;attention;Matmul 1234``: nanoseconds of device time of the warm calls."""
    times: dict[str, float] = defaultdict(float)
    warm, _ = choose_calls(run, WARM)
    for op in warm.op_records():
        if op.info.is_host:
            continue
        parts = [part for part in op.info.op.source.module.split(".") if part]
        # Spaces and semicolons divide; none belongs in a frame's name.
        frames = [op.record.program.name, *parts, op.info.op.kind]
        stack = ";".join("_".join(frame.replace(";", ",").split()) for frame in frames)
        times[stack] += op.total_ns
    lines = [f"{stack} {max(1, round(ns))}\n" for stack, ns in sorted(times.items())]
    write_text(path, "".join(lines))
