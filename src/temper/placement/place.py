"""Decide where every tensor of a program lies, and insert the ops that move tensors there.

Levels 0 and 1 keep everything interleaved in DRAM; windows are sharded on their way through SRAM
as ttnn does. Level 2 walks the schedule once: for every op it takes the way (see modes.py) with
the least modelled time of the op, the moves it needs and its readers' best answers, as long as
live tensors and circular buffers fit. What does not fit any more is spilled to DRAM, farthest
next use first. The result is checked with the real allocator before it is handed out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from temper.chips import Chip
from temper.errors import OutOfMemoryError
from temper.placement.pieces import Estimate, Meter
from temper.placement.planner import Planner
from temper.placement.pointwise import convolutions_to_matmuls
from temper.placement.report import PlacementReport
from temper.placement.slicing import slice_windows
from temper.program.memory_errors import explain_dram, explain_sram
from temper.program.program import Program
from temper.program.simulate import DoesNotFit, Timeline, walk
from temper.program.tensor import BLOCK_FORMATS, HOST, TensorSpec
from temper.program.trace_size import region_for, trace_bytes

# How often the plan is made anew after a spill or a fragmented bank showed a better start.
_ROUNDS = 6


def place(
    program: Program,
    chip: Chip,
    level: int,
    options: Mapping[str, Any] | None = None,
    *,
    estimate: Estimate | None = None,
) -> Program:
    """The program with a memory for every value; raises OutOfMemoryError before anything runs."""
    return place_with_report(program, chip, level, options, estimate=estimate)[0]


def place_with_report(
    program: Program,
    chip: Chip,
    level: int,
    options: Mapping[str, Any] | None = None,
    *,
    estimate: Estimate | None = None,
) -> tuple[Program, PlacementReport]:
    """As ``place``, and the reasons."""
    settings = options or {}
    cap = settings.get("sram_usage_cap")
    cap = 0.95 if cap is None else float(cap)
    l1_small = int(settings.get("l1_small_size") or 0)
    traced = bool(settings.get("enable_trace"))
    asked = settings.get("trace_region_size") if traced else 0
    trace = int(asked or 0)
    wanted = settings.get("enable_sram")
    sram = level >= 2 if wanted is None else bool(wanted)
    meter = Meter(chip, estimate or _modelled())
    budget = int((chip.sram_usable_bytes - l1_small) * cap)
    sliced = slice_windows(convolutions_to_matmuls(_host_weights(program)), chip)

    flat = Planner(sliced, meter, sram=False, budget=chip.sram_usable_bytes - l1_small, level=level)
    try:
        base = flat.run()
    except DoesNotFit as stop:
        raise explain_sram(stop, program, chip, level) from None
    chosen, planner, fallback = base, flat, ""
    if sram:
        try:
            found = _with_sram(sliced, meter, budget, chip, level, trace, l1_small)
        except (DoesNotFit, OutOfMemoryError) as stop:
            found, fallback = None, f"placed in DRAM: {str(stop).splitlines()[0]}"
        if found is not None and found[1].time_ns < flat.time_ns:
            chosen, planner = found
        elif found is not None:
            fallback = "SRAM does not pay: no slower with everything in DRAM (modelled)"
    if asked is None:  # sized for the trace
        trace = region_for(trace_bytes(chosen, chip), chip)
    _check(chosen, chip, level, trace, l1_small)
    report = PlacementReport(
        level=level,
        time_ns=planner.time_ns,
        dram_time_ns=flat.time_ns,
        values=planner.decisions(),
        spills=tuple(planner.spilled),
        moves=Counter(op.kind for op in chosen.ops if op.kind in _MOVES),
        fallback=fallback,
    )
    return chosen, report


_MOVES = frozenset({"InterleavedToSharded", "ShardedToInterleaved", "Reshard", "Halo", "Copy"})


def _with_sram(
    program: Program,
    meter: Meter,
    budget: int,
    chip: Chip,
    level: int,
    trace: int,
    l1_small: int,
) -> tuple[Program, Planner] | None:
    """Plan until the allocator agrees; values that were spilled unread start in DRAM next time."""
    forced: dict[str, str] = {}
    best: tuple[Program, Planner] | None = None
    for _ in range(_ROUNDS):
        planner = Planner(program, meter, sram=True, budget=budget, level=level, forced_dram=forced)
        placed = planner.run()
        try:
            walk(placed, chip, trace_region_bytes=trace, l1_small_bytes=l1_small)
        except DoesNotFit as stop:
            # Enough bytes, but not in one piece: take the largest holder out of SRAM.
            names = [planner.origin(name) for name in stop.holders]
            sizes = {
                n: meter.sram_bytes(placed.spec(h))
                for n, h in zip(names, stop.holders, strict=True)
            }
            free = [n for n in sizes if n not in forced and n in program.values]
            if not free or stop.index < 0:
                return best
            forced[max(free, key=lambda n: sizes[n])] = "SRAM is fragmented when it is needed"
            continue
        if best is None or planner.time_ns < best[1].time_ns:
            best = placed, planner
        fresh = {n: why for n, why in planner.unread_spills.items() if n not in forced}
        if not fresh:
            break
        forced.update(fresh)
    return best


def _check(program: Program, chip: Chip, level: int, trace: int, l1_small: int) -> Timeline:
    try:
        return walk(program, chip, trace_region_bytes=trace, l1_small_bytes=l1_small)
    except DoesNotFit as stop:
        if stop.error.what.endswith("DRAM."):
            raise explain_dram(stop, program, chip, trace) from None
        raise explain_sram(stop, program, chip, level) from None


def _host_weights(program: Program) -> Program:
    """Weights that only a preparation at run time reads stay on the host, as rows (level 0)."""
    readers: dict[str, set[str]] = {}
    for op in program.ops:
        for name in op.inputs:
            readers.setdefault(name, set()).add(op.kind)
    raw = [n for n in program.weights if readers.get(n) == {"PrepareConvWeight"}]
    if not raw:
        return program
    values = dict(program.values)
    for name in raw:
        spec = values[name]
        fmt = "bfloat16" if spec.format in BLOCK_FORMATS else spec.format
        values[name] = TensorSpec(spec.shape, fmt, "row_major", HOST)
    return program.replace(values=values)


def _modelled() -> Estimate:
    from temper.cost import estimate_op

    return estimate_op
