"""The op table of a run: one row for each op of each program that was called."""

from __future__ import annotations

import numpy as np

from temper.record.events import Flag
from temper.run import describe
from temper.run.records import ProcessRun, ProgramRecord, Run, call_flags
from temper.run.table import OpTable, Text


def table_of_run(run: Run) -> OpTable:
    """One row for each op of each program that was called in the run."""
    numbers: dict[str, list[float]] = {}
    texts: dict[str, list[str]] = {}
    for process in run.processes:
        for record in process.called:
            _add_program(numbers, texts, process, record)
    rows = len(texts.get("code", ()))
    chip = run.chip
    return OpTable(
        rows,
        {name: np.asarray(column, dtype=np.float64) for name, column in numbers.items()},
        {name: Text.of(column) for name, column in texts.items()},
        basis=run.basis,
        arch=chip.arch if chip else "",
        notes=run.notes,
    )


def _add_program(
    numbers: dict[str, list[float]],
    texts: dict[str, list[str]],
    process: ProcessRun,
    record: ProgramRecord,
) -> None:
    calls = process.calls[process.calls["ref"] == record.handle]
    wall = float((calls["end_ns"] - calls["start_ns"]).mean())
    traced = bool(call_flags(calls, Flag.TRACED).any())
    const = bool(call_flags(calls, Flag.CONST_EVAL).any())
    gaps = record.schedule.gap_ns
    for index, (info, cost) in enumerate(zip(record.ops, record.costs, strict=True)):
        model = info.performance_model
        values = {
            "count": len(calls),
            "kernel_ns": cost.kernel_ns,
            "low_ns": cost.low_ns,
            "high_ns": cost.high_ns,
            "gap_ns": gaps[index],
            "host_ns": wall / max(1, len(record.ops)),
            "cores": cost.cores,
            "available": info.chip.compute_cores,
            "flops": info.flops,
            "dram_bytes": info.dram_bytes,
            "pm_ideal_ns": model.ideal_ns,
            "pm_compute_ns": model.compute_ns,
            "pm_bandwidth_ns": model.bandwidth_ns,
            "padding_waste": info.padding_waste,
            "call": record.handle,
            "device": 0,
        }
        words = {
            "code": info.code,
            "type": "host" if info.is_host else "device",
            "module": info.op.source.module,
            "location": info.location,
            "fidelity": info.fidelity,
            "bound": cost.bound,
            "shape": " x ".join(describe.shape(spec) for spec in info.inputs[:2]),
            "formats": describe.formats(info),
            "memory": describe.memory(info.inputs[0]) if info.inputs else "",
            "trace": "traced" if traced else "",
            "attributes": "",
            "const_eval": "true" if const else "false",
        }
        for name, value in values.items():
            numbers.setdefault(name, []).append(float(value))
        for name, word in words.items():
            texts.setdefault(name, []).append(word)
