"""profile_log_device.csv: zones of cores and RISCs, as tt-metal's device profiler writes them.

The real file has a row for every core; this one shows the first and the last core of each op,
and stops after as many programs as the real profiler keeps by default.
"""

from __future__ import annotations

import os
from pathlib import Path

from temper.files import replacing
from temper.run.columns import START_SKEW_NS, firmware_ns
from temper.run.expand import Calls, blocks
from temper.run.records import Run

_HEADER = (
    "PCIe slot, core_x, core_y, RISC processor type, timer_id, time[cycles since reset], data, "
    "run host ID, trace id, trace id counter, zone name, type, source line, source file, meta data"
)
_RISCS = ("BRISC", "NCRISC", "TRISC_0", "TRISC_1", "TRISC_2")
_DEFAULT_PROGRAMS = 1000
_LIMIT_VARIABLE = "TT_METAL_PROFILER_PROGRAM_SUPPORT_COUNT"


def program_limit() -> int:
    """Ops in the log: tt-metal's default of 1000, or what its own variable says."""
    try:
        return max(1, int(os.environ.get(_LIMIT_VARIABLE, "")))
    except ValueError:
        return _DEFAULT_PROGRAMS


def write_device_log(run: Run, path: Path) -> None:
    """Write the device profiler's log, zone by zone."""
    chip = run.chip
    with replacing(path) as file:
        if chip is not None:
            first = (
                f"ARCH: {chip.arch}, CHIP_FREQ[MHz]: {chip.clock_mhz}, "
                f"Max Compute Cores: {chip.compute_cores}\n"
            )
            file.write(first.encode())
        file.write(f"{_HEADER}\n".encode())
        left, executed = program_limit(), 0
        for process in run.processes:
            count = executed
            for block in blocks(process, max_ops=left):
                rows = _block_rows(block, count, left)
                file.write("".join(rows).encode())
                left -= len(rows)
                count += block.start_ns.size
                if left <= 0:
                    return
            executed += process.op_count


def _block_rows(block: Calls, executed: int, limit: int) -> list[str]:
    """The rows of each device op; its host id is the ops CSV's GLOBAL CALL COUNT."""
    ghz = block.record.chip.clock_ghz
    width = block.record.chip.grid[0]
    size = len(block.record.ops)
    found: list[str] = []
    for call in range(len(block.calls)):
        replay = int(block.calls["value"][call])
        trace = f"{block.record.handle},{replay}" if replay else ","
        for index, info in enumerate(block.record.ops):
            if len(found) == limit:
                return found
            if info.is_host:
                continue
            host_id = (executed + call * size + index + 1) << 10
            cores = max(1, block.record.costs[index].cores)
            start, end = float(block.start_ns[call, index]), float(block.end_ns[call, index])
            found.append(_op_rows(start, end, ghz, cores, width, host_id, trace, info.code))
    return found


def _op_rows(
    start: float, end: float, ghz: float, cores: int, width: int, host_id: int, trace: str, op: str
) -> str:
    skew = min(START_SKEW_NS, (end - start) / 10)
    rows = []
    # Logical core (0, 0) starts first; the last one starts a skew later.
    for core, late in ((0, 0.0), (cores - 1, skew)) if cores > 1 else ((0, 0.0),):
        x, y = core % width + 1, core // width + 1
        for number, risc in enumerate(_RISCS):
            zone = "TRISC" if risc.startswith("TRISC") else risc
            marks = (
                (f"{zone}-FW", "ZONE_START", start + late - firmware_ns("") / 2),
                (f"{zone}-KERNEL", "ZONE_START", start + late),
                (f"{zone}-KERNEL", "ZONE_END", end - (skew - late)),
                (f"{zone}-FW", "ZONE_END", end - (skew - late) + firmware_ns("") / 2),
            )
            for timer, (name, kind, at) in enumerate(marks):
                cycle = max(0, round(at * ghz))
                rows.append(
                    f"0,{x},{y},{risc},{number * 8 + timer},{cycle},0,{host_id},{trace},"
                    f"{name},{kind},0,,{op.replace(',', ';')}"
                )
    return "\n".join(rows) + "\n"
