"""From the logs of recorded processes to a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from temper.errors import TemperError
from temper.record.log import ProcessLog
from temper.record.wire import WRONG_SHAPE
from temper.run.checking import check_record
from temper.run.records import ProcessRun, ProgramRecord, Run


def run_from_logs(logs: Iterable[ProcessLog], **meta: Any) -> Run:
    """One run of all processes that recorded anything; what was lost stands in its notes."""
    processes, notes = [], []
    for log in logs:
        if log.empty:
            continue
        process = process_from_log(log)
        processes.append(process)
        if log.damaged:
            notes.append(f"process {process.pid}: {log.damaged} damaged messages left out")
        if not process.complete:
            notes.append(
                f"process {process.pid} ended without closing its connection; "
                "everything that it had sent is kept"
            )
    return Run(sorted(processes, key=_first_ns), meta, tuple(notes))


def process_from_log(log: ProcessLog) -> ProcessRun:
    """A damaged program record costs its calls, not the run."""
    programs = {}
    for handle, message in log.programs.items():
        try:
            record = ProgramRecord.from_message(message)
            check_record(record)
            programs[handle] = record
        except (TemperError, *WRONG_SHAPE):
            log.damaged += 1
    names, hosts = dict(log.names), dict(log.op_host_ns)
    return ProcessRun(dict(log.hello), programs, log.table, names, hosts, log.closed)


def _first_ns(process: ProcessRun) -> int:
    return int(process.events["start_ns"].min()) if len(process.events) else 0
