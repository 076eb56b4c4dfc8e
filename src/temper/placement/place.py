"""Decide where every tensor of a program lies, and insert the ops that move tensors there.

Levels 0 and 1 keep everything interleaved in DRAM; windows are sharded on their way through SRAM
as ttnn does. Level 2 searches the ways to run each op (see modes.py) for the plan with the least
modelled time (search.py), against the real allocator. The result is walked once more before it is
handed out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from temper.chips import Chip
from temper.errors import OutOfMemoryError
from temper.placement.dram_shards import shard_weights
from temper.placement.emit import Plan
from temper.placement.in_parts import in_parts
from temper.placement.pieces import Estimate, Meter
from temper.placement.pointwise import convolutions_to_matmuls
from temper.placement.report import PlacementReport
from temper.placement.search import NothingFits, PlanSearch
from temper.placement.slicing import slice_windows
from temper.placement.ways import Shortage, WayBook
from temper.program.allocator import count, sram_allocator
from temper.program.memory_errors import explain_dram, explain_sram
from temper.program.program import Program
from temper.program.simulate import DoesNotFit, MemoryTimeline, walk
from temper.program.tensor import BLOCK_FORMATS, HOST, TensorSpec
from temper.program.trace_size import region_for, trace_bytes

# How often the plan is made anew after a spill showed a better start.
_ROUNDS = 3
# Shares of the cap that are tried until the walk through the program fits.
_SHARES = (1.0, 0.92, 0.8)


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
    sram = (level >= 2 if wanted is None else bool(wanted)) and cap > 0
    meter = Meter(chip, estimate or _modelled())
    whole = convolutions_to_matmuls(_host_weights(program))
    sliced = slice_windows(whole, chip)

    flat = _planned(sliced, meter, chip, level, sram=False, cap=1.0, l1_small=l1_small)
    chosen, fallback = flat, ""
    if sram:
        banks = bool(settings.get("enable_dram_shards"))
        for share in _SHARES:
            try:
                chosen = _searched(whole, sliced, meter, chip, level, cap * share, l1_small, banks)
                _check(chosen.program, chip, level, trace, l1_small)
                fallback = ""
                break
            except OutOfMemoryError as stop:
                # The allocator disagrees somewhere: with more room to spare it may not.
                fallback = fallback or f"everything in DRAM: {str(stop).splitlines()[0]}"
                chosen = flat
        if chosen is not flat and chosen.time_ns >= flat.time_ns:
            fallback = "SRAM does not pay: no slower with everything in DRAM (modelled)"
            chosen = flat
        if settings.get("enable_trace") is False and estimate is None and chosen is not flat:
            chosen, fallback = _without_trace(sliced, flat, chosen, chip, level, cap, l1_small)
    if asked is None:  # sized for the trace
        trace = region_for(trace_bytes(chosen.program, chip), chip)
    _check(chosen.program, chip, level, trace, l1_small)
    report = PlacementReport(
        level=level,
        time_ns=chosen.time_ns,
        dram_time_ns=flat.time_ns,
        values=chosen.decisions,
        spills=tuple(chosen.spilled),
        moves=Counter(op.kind for op in chosen.program.ops if op.kind in _MOVES),
        fallback=fallback,
        parts=chosen.parts,
    )
    return chosen.program, report


_MOVES = frozenset(
    {"InterleavedToSharded", "ShardedToInterleaved", "Reshard", "Halo", "Move", "Copy"}
)


def _searched(
    whole: Program,
    sliced: Program,
    meter: Meter,
    chip: Chip,
    level: int,
    cap: float,
    l1_small: int,
    banks: bool,
) -> Plan:
    """The fastest plan with tensors in SRAM: weights over the banks, parts of the batch."""
    chosen = _with_sram(sliced, meter, chip, level, cap, l1_small)
    banked = shard_weights(sliced, meter) if banks else sliced
    if banked.ops != sliced.ops:
        other = _with_sram(banked, meter, chip, level, cap, l1_small)
        chosen = min((other, chosen), key=lambda plan: plan.time_ns)
    if sliced is whole and not chosen.short_of_room:
        return chosen
    return in_parts(
        whole, chosen,
        lambda p: _with_sram(slice_windows(p, chip), meter, chip, level, cap, l1_small), meter,
    )  # fmt: skip


def _planned(
    program: Program,
    meter: Meter,
    chip: Chip,
    level: int,
    *,
    sram: bool,
    cap: float,
    l1_small: int,
    forced: Mapping[str, Shortage] | None = None,
) -> Plan:
    """The fastest plan that was found; raises OutOfMemoryError when an op fits in no way."""
    room = sram_allocator(chip, l1_small_bytes=l1_small, share=cap)
    book = WayBook(program, meter, sram=sram, level=level, forced_dram=forced)
    whole = sram_allocator(chip, l1_small_bytes=l1_small)
    search = PlanSearch(book, meter, room, whole)
    try:
        return Plan(search, search.run(), room.end - room.base)
    except NothingFits as stop:
        raise _too_big(stop, program, chip, level) from None


def _with_sram(
    program: Program, meter: Meter, chip: Chip, level: int, cap: float, l1_small: int
) -> Plan:
    """Plan again with what was spilled unread in DRAM from the start, while that is faster."""
    forced: dict[str, Shortage] = {}
    best: Plan | None = None
    for _ in range(_ROUNDS):
        plan = _planned(
            program, meter, chip, level, sram=True, cap=cap, l1_small=l1_small, forced=forced
        )
        if best is not None and plan.time_ns >= best.time_ns:
            break
        best = plan
        fresh = {n: why for n, why in plan.unread_spills.items() if n not in forced}
        if not fresh:
            break
        forced.update(fresh)
    assert best is not None
    return best


def _without_trace(
    program: Program, flat: Plan, traced: Plan, chip: Chip, level: int, cap: float, l1_small: int
) -> tuple[Plan, str]:
    """The plan with the shortest call when the host enqueues every op.

    Moves and sharded operands cost dispatch then, which can outweigh what they save on the chip.
    """
    from temper.cost import estimate
    from temper.cost.host import dispatch_ns

    plans = [flat, traced]
    meter = Meter(chip, _modelled(), dispatch_ns)
    try:
        other = _with_sram(program, meter, chip, level, cap, l1_small)
        _check(other.program, chip, level, 0, l1_small)
        plans.append(other)
    except OutOfMemoryError:  # the other two fit
        pass
    calls = [estimate(plan.program, traced=False, chip=chip).call_ns for plan in plans]
    best = plans[calls.index(min(calls))]
    if best is not flat:
        return best, ""
    return flat, (
        "everything in DRAM: without enable_trace the host enqueues more and slower ops with SRAM, "
        f"a call of {calls[1] / 1e6:.2f} instead of {calls[0] / 1e6:.2f} ms (modelled)"
    )


def _too_big(stop: NothingFits, program: Program, chip: Chip, level: int) -> OutOfMemoryError:
    """The error of an op that fits in no way by itself."""
    way, op = stop.way, stop.op
    worst = max(range(len(way.pieces)), key=lambda i: sum(way.sizes[i]) + way.circular[i])
    name = op.source.module or (op.outputs[0] if op.outputs else op.kind)
    error = OutOfMemoryError(
        f"{name} ({op.kind}) does not fit in SRAM (level {level}).",
        needs=(
            f"{count(way.circular[worst])} B circular buffers + {count(sum(way.sizes[worst]))} B "
            f"tensors a core; a core of {chip.name} has {count(chip.sram_usable_bytes)} B"
        ),
    )
    return explain_sram(DoesNotFit(stop.index, op, error, []), program, chip, level)


def _check(program: Program, chip: Chip, level: int, trace: int, l1_small: int) -> MemoryTimeline:
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
    fixed = [*program.weights, *(n for op in program.const_ops for n in op.outputs)]
    raw = [n for n in fixed if readers.get(n) == {"PrepareConvWeight"}]
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
