"""Records of what the host does within a call: torch operators, and images on their way up."""

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
    # x (N, C, H, W) on the host, zero-padded (top, bottom, left, right; C to channels) and cut into
    # blocks of step (down, across): (N, H', W', down * across * channels), in the output's shape.
    # images: the first and the end of those that are folded, None for all.
    OpKind(
        "FoldImage",
        "host",
        "(fold)",
        ("x",),
        {"step": [1, 1], "padding": [0, 0, 0, 0], "channels": 1, "images": None},
        buffers=no_buffers,
    ),
)
