"""The record of a torch operator that has no device lowering and runs on the host."""

from __future__ import annotations

from temper.program.op import OpKind, register
from temper.program.table.shared import no_buffers

register(
    # args/kwargs: JSON, with {"input": i} for the i-th operand, {"dtype": "..."},
    # {"call": target, ...} for a result that never leaves the host, and the like; results: which
    # of the operator's results are the outputs, None for all.
    OpKind(
        "Host",
        "host",
        "(torch)",
        ("xs*",),
        {"target": "", "args": [], "kwargs": {}, "results": None},
        results=(1, None),
        buffers=no_buffers,
    ),
)
