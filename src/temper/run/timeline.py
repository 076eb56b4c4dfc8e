"""When each op of a program runs on the device, on the modelled clock.

The device clock starts at 0 with a process's first call and knows nothing of the host's wall
clock: the virtual chip may take longer or shorter than the chip would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from temper.cost.records import OpCost, ProgramCost
    from temper.run.records import ProcessRun


@dataclass(frozen=True)
class Schedule:
    """One call of one program: offsets from the call's start, in ns, one entry an op."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    gap_ns: np.ndarray  # idle time of the device before the op; 0 for the first
    period_ns: float  # from this call's start to the next one's
    in_start_ns: float
    in_end_ns: float
    out_start_ns: float
    out_end_ns: float


def schedule(cost: ProgramCost, ops: Sequence[OpCost]) -> Schedule:
    """The modelled times of one steady call; ``ops`` are those of its ops that run."""
    starts: list[float] = []
    ends: list[float] = []
    gaps: list[float] = []
    host_ops = sum(op.kernel_ns for op in ops if op.bound == "host")
    on_device = sum(op.bound != "host" for op in ops)
    # The host enqueues op after op; the device waits for it when it is not ahead.
    enqueue = max(0.0, cost.host_ns - host_ops) / max(1, on_device)
    host_end = device_end = 0.0
    for op in ops:
        if op.bound == "host":
            # It needs the device's results, and the device needs its.
            start = max(host_end, device_end)
            host_end = end = start + op.kernel_ns
        else:
            start = max(device_end + op.gap_ns, host_end) if ends else 0.0
            host_end += enqueue
            end = start + op.kernel_ns
        gaps.append(start - device_end if op.bound != "host" else 0.0)
        starts.append(start)
        ends.append(end)
        device_end = end
    busy = ends[-1] if ends else 0.0
    period = max(cost.call_ns, busy)
    first = max(0.0, period - cost.transfer_out_ns - busy)
    in_start = max(0.0, first - cost.transfer_in_ns)
    return Schedule(
        np.array(starts) + first,
        np.array(ends) + first,
        np.array(gaps),
        period,
        in_start,
        in_start + cost.transfer_in_ns,
        first + busy,
        first + busy + cost.transfer_out_ns,
    )


@dataclass(frozen=True)
class Timeline:
    """All calls of one process on its modelled clock."""

    handles: np.ndarray  # program of each call
    start_ns: np.ndarray  # start of each call
    first_op: np.ndarray  # ops executed before each call
    total_ns: float


def timeline(process: ProcessRun) -> Timeline:
    """When each op of each call ran, on the device's clock."""
    handles = process.calls["ref"].astype(np.int64)
    size = int(handles.max()) + 1 if len(handles) else 0
    periods, sizes = np.zeros(size), np.zeros(size, dtype=np.int64)
    for handle, record in process.programs.items():
        if handle < size:
            periods[handle] = record.schedule.period_ns
            sizes[handle] = len(record.ops)
    ends = np.cumsum(periods[handles])
    ops = np.cumsum(sizes[handles])
    return Timeline(
        handles,
        ends - periods[handles],
        ops - sizes[handles],
        float(ends[-1]) if len(ends) else 0.0,
    )
