"""``temper memory``: SRAM and DRAM over a compiled program, drawn in the terminal."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from temper.cli.model import compile_options, load_model
from temper.cli.output import console, emit_json, json_option, table

if TYPE_CHECKING:
    from temper.program.memory_plan import MemoryPlan
    from temper.program.simulate import MemoryStep

_EPILOG = """\b
Examples:
  temper memory model.py:make
  temper memory model.py:make --level 2 --batch 16 --chip p150
  temper memory model.py:make --why            what keeps each tensor out of SRAM
  temper memory model.py:make --json > memory.json
"""
_ROWS = 8
_COLUMNS = 100
_MARGIN = 14  # sizes at the left of the picture


@click.command(epilog=_EPILOG)
@click.argument("model")
@compile_options
@click.option("--why", is_flag=True, help="Say for every tensor why it lies where it does.")
@json_option
def command(
    model: str,
    options: dict[str, Any],
    batch: int | None,
    why: bool,
    as_json: bool,
) -> None:
    """Draw the memory of MODEL (file.py:callable) op by op.

    SRAM is shown for one core: circular buffers of the running op and the tensors that are alive.
    DRAM is the whole chip's: weights, inputs, activations and the trace region. All figures are
    computed, none is measured.
    """
    from temper.compiler.pipeline import compile_model
    from temper.options import resolve
    from temper.program.memory_plan import plan

    asked = resolve(options)
    loaded = load_model(model, batch)
    compiled = compile_model(loaded.model, loaded.inputs, loaded.kwargs, asked)
    plans = [plan(program) for program in compiled.programs]
    reports = [getattr(graph, "placement", None) for graph in compiled.graphs]
    if as_json:
        documents = [made.as_dict() for made in plans]
        for document, report in zip(documents, reports, strict=True):
            document["placement"] = report.as_dict() if report else None
        emit_json(documents)
        return
    for made, report in zip(plans, reports, strict=True):
        _draw(made)
        if why and report is not None:
            _explain(report)


def _draw(made: MemoryPlan) -> None:
    out = console()
    cores = made.chip.compute_cores
    out.print(
        f"{made.program.name} on {made.chip.name}: {len(made.steps)} ops", markup=False,
        style="bold",
    )  # fmt: skip
    share = made.sram_high_water / made.sram_capacity
    out.print(
        f"\nSRAM of one core ({cores} cores): {_bytes(made.sram_high_water)} of "
        f"{_bytes(made.sram_capacity)} at its peak, {share:.0%} (computed)"
    )
    for line in sram_lines(made.steps, made.sram_capacity, min(_COLUMNS, out.width - _MARGIN)):
        out.print(line, markup=False)
    rows = [
        [step.index, step.kind, step.output, _bytes(step.circular_bytes),
         _bytes(step.sram_tensor_bytes), _holders(step)]
        for step in made.peak_steps()
    ]  # fmt: skip
    columns = ["op", "kind", "output", "circular buffers", "tensors", "held by"]
    right = ["op", "circular buffers", "tensors"]
    out.print(table("ops that need most SRAM", columns, rows, right=right))
    used = made.dram_high_water
    out.print(
        f"DRAM: {_bytes(used)} of {_bytes(made.dram_capacity)}, "
        f"{used / made.dram_capacity:.1%} (computed; trace modelled)"
    )
    parts = [
        ("weights", made.dram_weights),
        ("inputs", made.dram_inputs),
        ("activations", made.dram_activations),
        ("trace region", made.trace_region_bytes),
    ]
    longest = max(1, *(size for _, size in parts))
    for name, size in parts:
        bar = "█" * round(min(40, max(4, out.width - 34)) * size / longest) or ("▏" if size else "")
        out.print(f"  {name:<13}{_bytes(size):>16}  {bar}", markup=False)
    if not made.trace_region_bytes:
        out.print(f"  a trace would take {_bytes(made.trace_bytes)} (modelled, uncertain)")


def sram_lines(steps: tuple[MemoryStep, ...], capacity: int, columns: int = _COLUMNS) -> list[str]:
    """The chart: tensors below (█), circular buffers on top (░), one column or more an op."""
    if not steps:
        return ["  no ops"]
    width = min(columns, len(steps))
    starts = [i * len(steps) // width for i in range(width + 1)]
    highest = [
        max(steps[start:end], key=lambda step: step.sram_bytes) for start, end in pairwise(starts)
    ]
    repeat = max(1, columns // width // 2)
    peak = max(step.sram_bytes for step in steps)
    top = capacity if peak > capacity / 2 else peak
    lines = []
    for row in range(_ROWS, 0, -1):
        floor = (row - 0.5) / _ROWS * top
        cells = "".join(
            ("█" if step.sram_tensor_bytes >= floor else "░" if step.sram_bytes >= floor else " ")
            * repeat
            for step in highest
        )
        label = _bytes(round(top * row / _ROWS)) if row in (_ROWS, _ROWS // 2) else ""
        lines.append(f"{label:>12} │{cells}")
    lines.append(f"{'0 B':>12} └" + "─" * (width * repeat))
    lines.append(f"{'':14}op 0 to {len(steps) - 1};  █ tensors  ░ circular buffers of the op")
    return lines


def _explain(report: Any) -> None:
    out = console()
    rows = [
        [value["name"], value["where"], _bytes(value["bank_bytes"]),
         value["obstacle"] or value["reason"]]
        for value in report.as_dict()["values"]
    ]  # fmt: skip
    out.print(table("tensors", ["value", "where", "per bank", "why (times modelled)"], rows,
                    right=["per bank"]))  # fmt: skip
    gain = report.dram_time_ns - report.time_ns
    out.print(
        f"modelled device time {report.time_ns / 1000:.1f} us, {gain / 1000:.1f} us less than with "
        f"everything in DRAM; {report.in_sram} tensors in SRAM, {len(report.spills)} spills"
    )
    if report.headline:
        out.print(report.headline, markup=False)


def _holders(step: MemoryStep) -> str:
    largest = sorted(step.sram.items(), key=lambda item: -item[1])[:3]
    rest = len(step.sram) - len(largest)
    names = ", ".join(f"{name} {_bytes(size)}" for name, size in largest)
    return names + (f" and {rest} more" if rest > 0 else "")


def _bytes(size: int) -> str:
    return f"{size:,} B".replace(",", " ")
