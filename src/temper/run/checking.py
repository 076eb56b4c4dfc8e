"""Checking a program record that was read from a file, before any report relies on it."""

from __future__ import annotations

from temper.errors import BadFileError
from temper.program.memory_plan import POOLS
from temper.run.columns import Style, static_cells
from temper.run.records import ProgramRecord

_MAX_NS = 1e15  # eleven days: no op, call or schedule takes that long


def check_record(record: ProgramRecord) -> None:
    """Touch what reports use, so that damage is found here and costs one program."""
    numbers = [
        n for op in record.cost.ops for n in (op.kernel_ns, op.low_ns, op.high_ns, op.gap_ns)
    ]
    numbers += [getattr(record.cost, name) for name in ("call_ns", "device_ns", "host_ns")]
    numbers += [record.cost.transfer_in_ns, record.cost.transfer_out_ns]
    if not all(0 <= n < _MAX_NS for n in numbers):
        raise BadFileError(f"times of program {record.program.name!r} are out of range")
    if not 0 <= record.handle < 1 << 32 or not record.schedule.period_ns < _MAX_NS:
        raise BadFileError(f"program {record.program.name!r} is damaged")
    style = Style(newer=True, inputs=2, outputs=1)
    for info, cost in zip(record.infos, record.cost.ops, strict=True):
        static_cells(info, cost, style, const_eval=False, metadata="")
        if not info.padding_waste <= 1 or not 0 <= cost.cores < 1 << 20:
            raise BadFileError(f"{info.name} is damaged")
        info.name.encode(), info.location.encode()
    for pool in POOLS:
        record.memory.high_water(pool)
    for name in (*record.program.inputs, *record.program.outputs):
        if name not in record.program.values:
            raise BadFileError(f"program {record.program.name!r} has no value {name[:40]!r}")
