"""Advice for a run: option changes timed again by the cost model, best first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from temper.cost import estimate
from temper.cost.records import ProgramCost
from temper.errors import CompileError, OutOfMemoryError
from temper.program import Program
from temper.record.events import Flag
from temper.report import what_if
from temper.report.accuracy import fidelity_note, weight_format_note
from temper.report.advice import Advice
from temper.run.records import ProgramRecord, Run, call_flags

# Above this many ops in all programs the what-ifs would take longer than a person waits.
_MAX_OPS = 20_000
# A change that does not fit the chip or that the compiler refuses is no advice; any other error
# is ours and surfaces.
_REFUSED = (OutOfMemoryError, CompileError)
_SET = "temper.set_custom_compile_options({%s})"


def advise_run(run: Run) -> list[Advice]:
    """Every change that is worth making, ranked by the time that it saves."""
    cases = _cases(run)
    if not cases or sum(len(case.record.program.ops) for case in cases) > _MAX_OPS:
        return []
    found: list[Advice] = []
    for rule in _RULES:
        try:
            found += [item for item in rule(cases) if item.worthwhile]
        except _REFUSED:
            continue
    return sorted(found, key=lambda item: -item.gain_ns)


@dataclass(frozen=True)
class _Case:
    """One program with the number of its calls, and what the cost model says of it today."""

    record: ProgramRecord
    calls: int
    traced: bool
    base: ProgramCost

    @property
    def now_ns(self) -> float:
        return self.record.cost.call_ns * self.calls

    def then(self, cost: ProgramCost) -> tuple[float, float, float]:
        """Time and band of all calls with a new cost, on the recorded scale."""
        scale = self.record.cost.call_ns / self.base.call_ns if self.base.call_ns else 1.0
        factor = scale * self.calls
        return cost.call_ns * factor, cost.call_low_ns * factor, cost.call_high_ns * factor

    def option(self, name: str) -> object:
        return what_if.option(self.record.meta, self.record.program, name)


def _cases(run: Run) -> list[_Case]:
    cases = []
    for process in run.processes:
        for handle, count in zip(*np.unique(process.calls["ref"], return_counts=True), strict=True):
            record = process.programs[int(handle)]
            calls = process.calls[process.calls["ref"] == handle]
            if call_flags(calls, Flag.CONST_EVAL).any() or not record.cost.call_ns:
                continue
            traced = bool(call_flags(calls, Flag.TRACED).any())
            base = estimate(record.program, traced=traced)
            cases.append(_Case(record, int(count), traced, base))
    return cases


def _advise_change(
    cases: Iterable[_Case],
    change: Callable[[_Case], ProgramCost | None],
    title: str,
    why: str,
    paste: str,
    accuracy: str = "",
) -> list[Advice]:
    """Re-cost every program that the change touches; the others stay as they are."""
    now = then = low = high = 0.0
    touched = False
    for case in cases:
        cost = change(case)
        touched |= cost is not None
        new, new_low, new_high = case.then(cost or case.base)
        now, then, low, high = now + case.now_ns, then + new, low + new_low, high + new_high
    return [Advice(title, why, paste, now, then, low, high, accuracy)] if touched else []


def _recost(case: _Case, program: Program | None) -> ProgramCost | None:
    return estimate(program, traced=case.traced) if program is not None else None


def _weight_formats(cases: list[_Case]) -> list[Advice]:
    # Plain and traced calls are two cases of one program: its ops and weights count once.
    bound = {
        (case.record.program.name, index) for case in cases
        for index, (op, cost) in enumerate(zip(case.record.ops, case.record.costs, strict=True))
        if op.op.kind == "Matmul" and cost.bound == "dram"
    }  # fmt: skip
    weights = {
        (case.record.program.name, name)
        for case in cases
        for name in what_if.matmul_weights(case.record.program)
    }
    waiting = f"{len(bound)} wait" if len(bound) > 1 else "1 waits" if bound else "none waits"
    made = []
    for fmt, word in (("bfloat8_b", "bfp_bf8"), ("bfloat4_b", "bfp_bf4")):
        made += _advise_change(
            cases,
            lambda case, fmt=fmt: _recost(  # type: ignore[misc]
                case, what_if.with_weight_format(case.record.program, fmt)
            ),
            f"matmul weights in {fmt}",
            f"{len(weights)} weights of matmuls would be fewer bytes; of the matmuls {waiting} for "
            "DRAM",
            _SET % f'"experimental_weight_dtype": "{word}"',
            weight_format_note(fmt),
        )
    return made


def _bfloat16(cases: list[_Case]) -> list[Advice]:
    values = [spec for case in cases for spec in case.record.program.values.values()]
    count = sum(spec.format == "float32" for spec in values)
    return _advise_change(
        cases,
        lambda case: _recost(case, what_if.in_bfloat16(case.record.program)),
        "the model in bfloat16",
        f"{count} of {len(values)} tensors are float32: twice the bytes, and slower arithmetic",
        "model = model.to(torch.bfloat16)  # and its floating-point inputs",
        weight_format_note("bfloat16"),
    )


def _fidelity(cases: list[_Case]) -> list[Advice]:
    made = []
    ladder = (("HiFi2", frozenset({"HiFi4", "HiFi3"})), ("LoFi", frozenset({"HiFi2"})))
    for fidelity, above in ladder:
        count = sum(
            op.fidelity in above and op.op.info.matrix for c in cases for op in c.record.ops
        )
        made += _advise_change(
            cases,
            lambda case, f=fidelity, a=above: _recost(  # type: ignore[misc]
                case, what_if.with_fidelity(case.record.program, f, a)
            ),
            f"math fidelity {fidelity}",
            f"{count} matrix ops run at {' or '.join(sorted(above))}",
            _SET % f'"math_fidelity": "{fidelity.lower()}"',
            fidelity_note(fidelity),
        )
    return made


def _trace(cases: list[_Case]) -> list[Advice]:
    replayed = {case.record.program.name for case in cases if case.traced}
    gaps = sum(float(c.record.schedule.gap_ns.sum()) * c.calls for c in cases if not c.traced)
    total = sum(case.now_ns for case in cases) or 1.0
    return _advise_change(
        [case for case in cases if case.record.program.name not in replayed],
        lambda case: None if case.traced else estimate(case.record.program, traced=True),
        "replay a trace",
        f"the device waits {gaps / total:.0%} of the time between ops for the host",
        _SET % '"enable_trace": True',
        "nothing: the same ops run",
    )


def _levels(cases: list[_Case]) -> list[Advice]:
    """Level 1's compute configs, level 2's placement: the parts a program shows by itself."""
    from temper.placement.place import place

    made = []
    if any(case.option("optimization_level") == 0 for case in cases):
        made += _advise_change(
            cases,
            lambda case: _recost(
                case, what_if.with_ttnn_compute(case.record.program, case.record.chip.arch)
            ),
            "optimization level 1",
            "level 0 computes everything at HiFi4 with float32 sums; fusion and prepared weights "
            "come on top of this figure",
            _SET % '"optimization_level": 1',
            "sums in bfloat16 where ttnn chooses so",
        )
    flat = [
        case
        for case in cases
        if all(s.memory.buffer != "sram" for s in case.record.program.values.values())
    ]
    if flat:
        made += _advise_change(
            flat,
            lambda case: _recost(
                case, place(case.record.program, case.record.chip, 2, case.record.program.options)
            ),
            "optimization level 2",
            "every tensor lies in DRAM; level 2 keeps what fits in SRAM",
            _SET % '"optimization_level": 2',
            "nothing: the same numbers from nearer memory",
        )
    return made


def _kept_out(cases: list[_Case]) -> list[Advice]:
    """The op that would gain most from SRAM, and what keeps it out."""
    best: tuple[float, _Case, int, ProgramCost] | None = None
    for case in cases:
        program = case.record.program
        if all(spec.memory.buffer != "sram" for spec in program.values.values()):
            continue
        slow = sorted(range(len(program.ops)), key=lambda i: -case.base.ops[i].kernel_ns)[:5]
        for index in slow:
            if case.base.ops[index].bound != "dram":
                continue
            cost = _recost(case, what_if.with_activations_in_sram(program, index))
            if cost and (best is None or case.base.call_ns - cost.call_ns > best[0]):
                best = (case.base.call_ns - cost.call_ns, case, index, cost)
    if best is None:
        return []
    _, chosen, index, cost = best
    info = chosen.record.infos[index]
    chip = chosen.record.chip
    size = sum(
        spec.size_bytes
        for i, spec in enumerate((*info.inputs, *info.outputs))
        if i not in info.weights
    )
    a_core = size // chip.compute_cores
    fits = a_core <= chip.sram_usable_bytes
    reason = "other tensors hold the room" if fits else "it does not fit"
    return _advise_change(
        cases,
        lambda case: cost if case is chosen else None,
        f"{info.name} in SRAM",
        f"it waits for DRAM; its activations need {a_core} B per core of "
        f"{chip.sram_usable_bytes} B: {reason}",
        _SET % '"activation_dtype": "bfloat8_b"'
        if fits
        else f"# a smaller batch, about {chip.sram_usable_bytes / a_core:.0%} of this one",
        weight_format_note("bfloat8_b") if fits else "nothing",
    )


def _host_ops(cases: list[_Case]) -> list[Advice]:
    places: list[str] = []
    now = then = 0.0
    for case in cases:
        lost = 0.0
        for info, cost in zip(case.record.ops, case.record.costs, strict=True):
            if info.op.kind == "Host":  # others of the host are there because it is faster
                lost += cost.kernel_ns
                place = f"{info.code} at {info.location or info.name}"
                if place not in places:
                    places.append(place)
        now += case.now_ns
        then += case.now_ns - lost * case.calls
    if not places:
        return []
    word = "op has" if len(places) == 1 else "ops have"
    why = f"{len(places)} {word} no device lowering: {', '.join(places[:3])}"
    paste = f"# {places[0]}: use ops that the chip has ('temper passes' lists them)"
    return [Advice("no ops on the host", why, paste, now, then, then, now)]


def _layouts(cases: list[_Case]) -> list[Advice]:
    now = then = 0.0
    count = 0
    where = ""
    for case in cases:
        chain = what_if.layout_chains(case.record.program)
        lost = sum(
            case.record.cost.ops[i].kernel_ns + case.record.cost.ops[i].gap_ns for i in chain
        )
        count += len(chain)
        if chain and not where:
            first = case.record.infos[chain[0]]
            where = first.location or first.name
        now += case.now_ns
        then += case.now_ns - lost * case.calls
    if not count:
        return []
    why = f"{count} ops change a layout that the op before had just changed, first at {where}"
    paste = _SET % '"enable_layout_optimization": True'
    if all(case.option("enable_layout_optimization") is True for case in cases):
        paste = f"# {where}: keep the tensor in one layout between these ops"
    return [Advice("fewer layout changes (at most)", why, paste, now, then, then, now)]


def _padding(cases: list[_Case]) -> list[Advice]:
    made = []
    sizes = {size for case in cases for size in what_if.odd_dimensions(case.record.program)[:3]}
    for size in sorted(sizes):
        full = -(-size // 32) * 32
        made += _advise_change(
            cases,
            lambda case, size=size: _recost(  # type: ignore[misc]
                case, what_if.without_padding_of(case.record.program, size)
            ),
            f"{size // 32 * 32} instead of {size}",
            f"a dimension of {size} is padded to {full}: {(full - size) / full:.0%} of its tiles' "
            "work is on zeros",
            f"# use a size of {size // 32 * 32} (or all of {full}) where the model has {size}",
            "the model changes",
        )
    return made


def _batch(cases: list[_Case]) -> list[Advice]:
    """Twice the batch: time for the same number of items."""
    now = then = low = high = 0.0
    batch = 0
    for case in cases:
        doubled = what_if.with_double_batch(case.record.program)
        if doubled is None:
            return []
        batch = max(batch, case.record.program.spec(case.record.program.inputs[0]).shape[0])
        parts = case.then(estimate(doubled, traced=case.traced))
        now += case.now_ns
        then, low, high = then + parts[0] / 2, low + parts[1] / 2, high + parts[2] / 2
    why = "launch, dispatch and weights are paid once per call; figures are for the same items"
    paste = f"# batch {2 * batch} instead of {batch}; 'temper fit' says how far it goes"
    return [Advice("twice the batch", why, paste, now, then, low, high, "latency of a call")]


_RULES: tuple[Callable[[list[_Case]], list[Advice]], ...] = (
    _bfloat16, _weight_formats, _fidelity, _trace, _levels, _kept_out, _host_ops, _layouts,
    _padding, _batch,
)  # fmt: skip
