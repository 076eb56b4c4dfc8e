"""The device operations: one record a kind, one file a family.

Every stage keys on this table: lowering emits these kinds, a target executes them, the cost model
times them, the memory walk asks for their buffers, the profiler prints their op codes.
"""

from __future__ import annotations

from temper.program.op import KINDS, OpKind
from temper.program.table import (  # noqa: F401  (each enters its records)
    attention,
    data,
    decode,
    elementwise,
    host,
    layout,
    matmul,
    norm,
    reduce,
    window,
)

__all__ = ["KINDS", "OpKind"]
