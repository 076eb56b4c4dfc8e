"""Calls expanded into ops, block by block: for writers that need every execution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from temper.run.records import ProcessRun, ProgramRecord
from temper.run.timeline import timeline

_OPS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Calls:
    """Some consecutive calls of one program; arrays are (calls, ops) and (calls,)."""

    record: ProgramRecord
    calls: np.ndarray  # the call events
    call_start_ns: np.ndarray  # modelled
    start_ns: np.ndarray
    end_ns: np.ndarray


def blocks(process: ProcessRun, *, max_ops: int | None = None) -> Iterator[Calls]:
    """Every call in order; stops after ``max_ops`` ops."""
    line = timeline(process)
    calls = process.calls
    if not len(calls):
        return
    edges = np.concatenate(([0], np.flatnonzero(np.diff(line.handles)) + 1, [len(calls)]))
    left = process.op_count if max_ops is None else max_ops
    for first, last in pairwise(edges.tolist()):
        record = process.programs[int(line.handles[first])]
        size = max(1, len(record.ops))
        step = max(1, _OPS_AT_ONCE // size)
        for start in range(first, last, step):
            if left <= 0:
                return
            some = slice(start, min(start + step, last, start + -(-left // size)))
            begin = line.start_ns[some]
            yield Calls(
                record,
                calls[some],
                begin,
                begin[:, None] + record.schedule.start_ns[None, :],
                begin[:, None] + record.schedule.end_ns[None, :],
            )
            left -= (some.stop - some.start) * size
