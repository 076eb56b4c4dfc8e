"""Two models, settings or boards side by side, by the cost model and by measured accuracy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from temper import chips
from temper.cost import ProgramCost, estimate
from temper.errors import UsageError
from temper.frontdoor.loader import find, takes_batch
from temper.options import resolve, unless_set
from temper.program import Program
from temper.program.memory_plan import plan
from temper.report.compare import Change
from temper.tuning.accuracy import CHIP_SUMS, agreed
from temper.tuning.captures import Captures
from temper.tuning.choice import Difference, difference
from temper.tuning.prepared import DTYPES, run_once
from temper.tuning.rung import obstacle, shares
from temper.tuning.sample import choose as choose_sample
from temper.tuning.subject import batch_of


@dataclass(frozen=True)
class Side:
    """One of the two: what was compiled, its modelled cost, its measured accuracy."""

    model: str
    options: Mapping[str, Any]
    chip: str
    batch: int
    call_ns: float
    low_ns: float
    high_ns: float
    samples_per_s: float
    pcc: float | None
    relative_rms: float | None
    ops: int
    dram_bytes: int
    limited_by: str

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "options": dict(self.options)}


@dataclass(frozen=True)
class Compared:
    """Both sides, the ratio of their times a sample, and what changed by kind of op."""

    before: Side
    after: Side
    difference: Difference
    changes: tuple[Change, ...]  # largest first
    parts: Mapping[str, tuple[float, float]]  # shares of a call, in ns

    def as_dict(self) -> dict[str, Any]:
        changes = [{**c.__dict__, "kind": c.kind} for c in self.changes]
        return {**self.__dict__, "clock": "modelled", "changes": changes,
                "parts": {k: list(v) for k, v in self.parts.items()}}  # fmt: skip


def compare_models(
    first: tuple[str, Mapping[str, Any]],
    second: tuple[str, Mapping[str, Any]],
    *,
    accuracy: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> Compared:
    """Compile both; options may hold ``chip``, ``batch`` and ``dtype`` beside compile options."""
    captures: dict[str, Captures] = {}
    sides = []
    for model, options in (first, second):
        captures.setdefault(model, Captures(find(model)))
        sides.append(_side(model, dict(options), captures[model], accuracy, progress))
    (one, costs, programs), (two, others, other_programs) = sides
    return Compared(
        one, two, difference(others, costs, two.batch, one.batch),
        _changes(programs, costs, other_programs, others), _parts(costs, others),
    )  # fmt: skip


def _side(
    model: str,
    options: dict[str, Any],
    captures: Captures,
    accuracy: bool,
    progress: Callable[[str], None],
) -> tuple[Side, list[ProgramCost], list[Program]]:
    said = dict(options)
    dtype = str(options.pop("dtype", "bfloat16"))
    if dtype not in DTYPES:
        raise UsageError(f"no dtype {dtype!r}", allowed=", ".join(DTYPES))
    batch = int(options.pop("batch", 0)) or None
    source = captures.source
    if batch is None and takes_batch(find(model)):
        batch = 1
    preferred = unless_set({"optimization_level": 2, "enable_trace": True})
    options = {**preferred, **options}
    options["chip"] = chips.get(str(options.get("chip") or resolve()["chip"])).name
    progress(f"compiling {model}")
    loaded, compiled = captures.compile(dtype, batch, options)
    graph_options = compiled.graphs[0].options
    costs = [estimate(p, traced=bool(graph_options["enable_trace"])) for p in compiled.programs]
    size = batch or batch_of((loaded.inputs, loaded.kwargs))
    call = sum(c.call_ns for c in costs)
    found = None
    if accuracy:
        progress(f"accuracy of {model}")
        sample = choose_sample(source, takes_batch(find(model)))
        held, judged = captures.compile(dtype, sample.batch, {**options, **CHIP_SUMS})
        output = run_once(held, judged)
        if output is not None:
            found = agreed(output.float().reshape(sample.expected.shape), sample.expected)
    programs = compiled.programs
    side = Side(
        model, said, str(graph_options["chip"]), size, call,
        sum(c.call_low_ns for c in costs), sum(c.call_high_ns for c in costs), size / call * 1e9,
        None if found is None else found.pcc, None if found is None else found.relative_rms,
        sum(len(p.ops) for p in programs),
        max(plan(p).dram_high_water for p in programs), obstacle(costs),
    )  # fmt: skip
    return side, costs, programs


def _changes(
    programs: list[Program],
    costs: list[ProgramCost],
    others: list[Program],
    other_costs: list[ProgramCost],
) -> tuple[Change, ...]:
    """Time and count by kind of op, of one call."""
    tables: list[dict[str, tuple[float, int]]] = []
    for made, priced in ((programs, costs), (others, other_costs)):
        table: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
        for program, cost in zip(made, priced, strict=True):
            for op, each in zip(program.ops, cost.ops, strict=True):
                time, count = table[op.kind]
                table[op.kind] = time + each.kernel_ns, count + 1
        tables.append(dict(table))
    one, two = tables
    found = [
        Change(kind, "", one.get(kind, (0.0, 0))[0], two.get(kind, (0.0, 0))[0],
               one.get(kind, (0.0, 0))[1], two.get(kind, (0.0, 0))[1])
        for kind in dict.fromkeys((*one, *two))
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda c: -abs(c.delta_ns)))


def _parts(costs: list[ProgramCost], others: list[ProgramCost]) -> dict[str, tuple[float, float]]:
    """What a call's time goes to, before and after."""
    one, two = (
        {name: share * sum(c.call_ns for c in part) for name, share in shares(part).items()}
        for part in (costs, others)
    )
    return {name: (one.get(name, 0.0), two.get(name, 0.0)) for name in dict.fromkeys((*one, *two))}
