"""The cost model's frame: one op or one program in, nanoseconds with a band out."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from temper.chips import CHIPS, Chip, get
from temper.cost import host, matmul, neighbours
from temper.cost.bands import BEYOND, EXTRAPOLATED
from temper.cost.constants import Factors, Family, constants, on_change
from temper.cost.families import physics
from temper.cost.records import Context, OpCost, Physics, ProgramCost
from temper.cost.work import Work, dram_bytes
from temper.program.conv_config import skips_halo
from temper.program.op import Op, on_host
from temper.program.program import Program
from temper.program.tensor import DRAM, TensorSpec, is_view

# What limits an op when a term is the largest; other terms are named after their resource.
_BOUND = {
    "skew": "launch", "first": "launch", "cores": "launch", "blocks": "noc", "unpack": "compute",
    "pack": "compute",
}  # fmt: skip


def estimate_op(
    op: Op,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    chip: Chip,
    *,
    traced: bool = False,
    context: Context | None = None,
) -> OpCost:
    """Modelled time of one op. ``context`` tells cores and trace as measured, for rows."""
    if context is None and (
        (op.kind == "Reshape" and is_view(inputs[0], outputs[0]))
        or (op.kind == "Halo" and skips_halo(op, inputs[0], outputs[0]))
    ):
        return _NOTHING
    if outputs and all(0 in spec.shape for spec in outputs):
        return _NOTHING
    known = context or Context(traced=traced)
    key = _key(op, inputs, outputs, chip, known)
    cost = _cache.get(key)
    if cost is None:
        if len(_cache) >= _CACHED:
            _cache.clear()
        cost = _cache[key] = _estimate(op, inputs, outputs, chip, known)
    return cost


def _key(
    op: Op,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    chip: Chip,
    known: Context,
) -> Hashable:
    """All that a modelled time depends on."""
    return (
        op.kind, repr(op.attrs), tuple(inputs), tuple(outputs), known,
        chip.name, chip.grid, chip.clock_mhz, chip.dram_peak_gbps,
    )  # fmt: skip


# A reshape that moves nothing is no program on the device, nor is an op without elements.
_NOTHING = OpCost(0.0, 0.0, 0.0, 0.0, "launch", 0)
# Variants of a program share most of their ops, so a what-if costs little more than what changed.
_cache: dict[Hashable, OpCost] = {}
# The same for what bounds an op from above, which ops in other memories and formats share.
_found: dict[Hashable, tuple[_Timed, _Timed]] = {}
on_change(_cache.clear)
on_change(_found.clear)
_CACHED = 100_000


def _estimate(
    op: Op,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    chip: Chip,
    known: Context,
) -> OpCost:
    if op.kind == "Host":
        return _host_op(inputs, outputs, chip)
    if on_host(op, inputs):
        return _on_the_way_up(op, inputs[0], outputs[0], chip)
    work = Work(op, inputs, outputs, chip, known)
    timed, best = _fastest(work)
    outrun = chip.architecture.outruns
    if outrun and _free(work):
        _, older = _fastest(replace(work, chip=CHIPS[outrun]))
        best = min(best, older, key=lambda way: way.kernel_ns)
    kernel_ns, bound = best.kernel_ns, best.bound
    least_ns = min(best.least_ns, timed.least_ns)
    terms = timed.terms
    table = constants().family(terms.family, chip.arch)
    low, high = table.bands[table.seen.novelty(terms.variant, terms.size, terms.cores)]
    widen = EXTRAPOLATED if timed.extrapolated else 1.0
    moved = sum(map(dram_bytes, inputs)) + sum(map(dram_bytes, outputs))
    vector_ns = terms.overlap.get("sfpu", 0.0) + terms.serial.get("sfpu", 0.0)
    busy = {
        "compute": min(1.0, terms.overlap.get("compute", 0.0) / kernel_ns),
        "sfpu": min(1.0, vector_ns / kernel_ns),
        "dram": min(1.0, moved / chip.dram_peak_gbps / kernel_ns),
        "noc": min(1.0, terms.overlap.get("noc", 0.0) / kernel_ns),
        "cores": min(1.0, terms.cores / work.available),
    }
    return OpCost(
        kernel_ns,
        max(kernel_ns * low**widen, least_ns),
        kernel_ns * high**widen,
        host.gap_ns(chip),
        bound,
        terms.cores,
        busy,
        neighbours.nearest(chip.arch, terms),
        timed.extrapolated,
        (terms.family, *terms.variant),
        least_ns,
    )


@dataclass(frozen=True, slots=True)
class _Timed:
    terms: Physics
    kernel_ns: float
    bound: str
    extrapolated: bool
    least_ns: float


def _timed(work: Work) -> _Timed:
    fitted = constants()
    terms = physics(work)
    table = fitted.family(terms.family, work.chip.arch)
    factors = table.lookup(terms.variant)
    kernel_ns, bound = join(terms, table, factors)
    least_ns, limit = roofline(terms, work.chip)
    if least_ns > kernel_ns:
        kernel_ns, bound = least_ns, limit
    beyond = terms.size > BEYOND * table.largest
    extrapolated = (
        not factors.near or beyond or (terms.family, work.chip.arch) not in fitted.families
    )
    return _Timed(terms, kernel_ns, bound, extrapolated, least_ns)


# Which of their operands' bytes these kernels touch depends on values.
_SPARSE = frozenset({"other", "sparse_matmul", "sdpa_decode"})


def roofline(terms: Physics, chip: Chip) -> tuple[float, str]:
    """Time that no kernel can beat, by the peaks of DRAM and of the matrix engines; its bound."""
    moved = terms.overlap.get("dram", 0.0) * chip.dram_streaming_gbps
    moved += terms.overlap.get("dram_b", 0.0) * chip.dram_best_gbps
    dram_ns = 0.0 if terms.family in _SPARSE else moved / chip.dram_peak_gbps
    return max((dram_ns, "dram"), (terms.matrix_ns, "compute"))


def _fastest(work: Work) -> tuple[_Timed, _Timed]:
    """The op as ttnn would run it, and the fastest of it and of what bounds it from above.

    Factors of kernels with few rows do not always agree with each other by themselves.
    """
    key = _key(work.op, work.inputs, work.outputs, work.chip, work.context)
    found = _found.get(key)
    if found is None:
        if len(_found) >= _CACHED:
            _found.clear()
        timed = _timed(work)
        best = min((timed, *_bounds(work, timed)), key=lambda way: way.kernel_ns)
        found = _found[key] = timed, best
    return found


def _bounds(work: Work, timed: _Timed) -> Iterator[_Timed]:
    """Ways to do the same work, or more of it, that bound it from above."""
    if _in_sram(work.inputs, work.outputs):
        # SRAM is reached at least as fast as DRAM.
        far = replace(work, inputs=_dram(work.inputs), outputs=_dram(work.outputs))
        plain, best = _fastest(far)
        if _free(work) or plain.terms.cores <= timed.terms.cores:
            yield best
    if timed.terms.family == "matmul" and not work.context.cores and not work.attr("config"):
        # ttnn goes by the ratio of the sides; the config that it takes for a larger one would do.
        yield from map(_timed, matmul.ways(work))
    if _free(work):
        # Values could be held in the next larger format.
        specs = [_larger(spec) for spec in (*work.inputs, *work.outputs)]
        if any(a is not b for a, b in zip(specs, (*work.inputs, *work.outputs), strict=True)):
            count = len(work.inputs)
            yield _fastest(replace(work, inputs=specs[:count], outputs=specs[count:]))[1]


def _free(work: Work) -> bool:
    """Whether nothing but the op itself decides how many cores run it."""
    sharded = any(spec.memory.sharded for spec in (*work.inputs, *work.outputs))
    return not work.context.cores and not sharded and not work.attr("config")


_LARGER = {"bfloat2_b": "bfloat4_b", "bfloat4_b": "bfloat8_b", "bfloat8_b": "bfloat16",
           "bfloat16": "float32"}  # fmt: skip


def _larger(spec: TensorSpec) -> TensorSpec:
    return replace(spec, format=_LARGER[spec.format]) if spec.format in _LARGER else spec


def _in_sram(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> bool:
    return any(spec.memory.buffer == "sram" for spec in (*inputs, *outputs))


def _dram(specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    return [spec.with_memory(DRAM) if spec.memory.buffer == "sram" else spec for spec in specs]


def join(terms: Physics, table: Family, factors: Factors) -> tuple[float, str]:
    """Time and bound: serial terms add, overlapped terms join by a p-norm."""
    total = joined = largest = largest_joined = 0.0
    name = joined_name = "launch"
    for term, factor in zip(table.serial, factors.serial, strict=True):
        value = terms.serial.get(term, 0.0) * factor
        total += value
        if value > largest:
            largest, name = value, term
    power = table.power
    for term, factor in zip(table.overlap, factors.overlap, strict=True):
        value = terms.overlap.get(term, 0.0) * factor
        joined += value**power
        if value > largest_joined:
            largest_joined, joined_name = value, term
    overlapped = joined ** (1 / power)
    if overlapped > largest:
        name = joined_name
    return total + overlapped, _BOUND.get(name, name.split("_")[0])


# Work on an input before it is sent; a reshape changes nothing but the pages that are written.
def _on_the_way_up(op: Op, x: TensorSpec, out: TensorSpec, chip: Chip) -> OpCost:
    """An input that the host brings into another order, and its transfer when it leaves."""
    time_ns = 0.0
    if op.kind == "FoldImage":
        first, end = op.attr("images") or (0, x.shape[0])
        time_ns = host.fold_ns(math.prod((end - first, *x.shape[1:])))
    if out.memory.buffer != "host":
        time_ns += host.transfer_ns(chip, out, to_device=True)
    return OpCost(time_ns, time_ns * 0.5, time_ns * 2.0, 0.0, "host", 0, {}, "", True)


def _host_op(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], chip: Chip) -> OpCost:
    """An op that runs on the host: operands come down the link, results go up again."""
    down = sum(host.transfer_ns(chip, spec, to_device=False) for spec in inputs)
    up = sum(host.transfer_ns(chip, spec, to_device=True) for spec in outputs)
    time_ns = down + up + host.constants(chip).sync_ns
    return OpCost(time_ns, time_ns * 0.5, time_ns * 2.0, 0.0, "host", 0, {}, "", True)


def estimate(program: Program, *, traced: bool = False, chip: Chip | None = None) -> ProgramCost:
    """One steady call of a program, and its first call."""
    board = chip or get(program.chip)
    ops = tuple(
        estimate_op(op, program.input_specs(op), program.output_specs(op), board, traced=traced)
        for op in program.ops
    )
    constant = program.const_ops if program.const_eval_place == "device" else ()
    once = tuple(
        estimate_op(op, program.input_specs(op), program.output_specs(op), board) for op in constant
    )
    return host.call(program, board, ops, traced=traced, once=once)
