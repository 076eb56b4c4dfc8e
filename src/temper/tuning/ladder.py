"""The ladder of settings: from float32 at level 0 to block formats, rung by rung."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from temper.compiler.moving import moving_share
from temper.compiler.pipeline import CompiledPrograms
from temper.cost import ProgramCost, estimate
from temper.errors import OutOfMemoryError, UsageError
from temper.frontdoor.loader import Loaded, find, takes_batch
from temper.program import Program
from temper.tuning.accuracy import CHIP_SUMS, Floor, floors, judged, loss
from temper.tuning.captures import Captures
from temper.tuning.choice import Difference, choose, difference
from temper.tuning.prepared import Source, run_once
from temper.tuning.rung import Rung, changed_buffers, did, obstacle, padding
from temper.tuning.sample import Sample
from temper.tuning.sample import choose as choose_sample
from temper.tuning.subject import batch_of
from temper.units import html_table

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
# A larger batch must pay at least this much, or throughput has reached its plateau.
_PLATEAU = 1.03
FORMATS = ("bfp_bf8", "bfp_bf4")
_AGAIN = "float32 again"  # the best settings so far, without the cast


@dataclass
class Ladder:
    """The rungs in the order climbed, the best of them, and what to know beside."""

    chip: str
    rungs: list[Rung] = field(default_factory=list)
    best: Rung | None = None
    floor: str = ""
    skipped: list[str] = field(default_factory=list)  # rungs that were not tried, and why
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False  # Ctrl-C or SIGTERM came before the last rung
    late: bool = False  # the time budget was spent before the last rung
    cast: str = ""  # what to know about casting a float32 model
    buffers: str = ""  # what to know about buffers that the model changes
    costs: dict[str, list[ProgramCost]] = field(default_factory=dict)  # by rung
    programs: dict[str, list[Program]] = field(default_factory=dict)  # by rung

    def __iter__(self) -> Iterator[Rung]:
        return iter(self.rungs)

    def differ(self, one: Rung, other: Rung) -> Difference:
        """Time a sample of one rung over another's."""
        return difference(self.costs[one.name], self.costs[other.name], one.batch, other.batch)

    def _repr_html_(self) -> str:
        """The rungs, as a notebook shows them."""
        best = f"; best: {self.best.name}" if self.best else ""
        rows = [
            (rung.name, str(rung.batch), f"{rung.samples_per_s:,.0f}",
             f"{rung.low_samples_per_s:,.0f} to {rung.high_samples_per_s:,.0f}",
             f"×{rung.gain:.2f}", rung.verdict, rung.accuracy_text, rung.next_obstacle)
            for rung in self.rungs
        ]  # fmt: skip
        columns = ("rung", "batch", "samples/s", "band", "gain", "verdict", "accuracy", "limit")
        return html_table(f"virtual {self.chip}, times modelled{best}", columns, rows)

    def as_dict(self) -> dict[str, Any]:
        return {
            "chip": self.chip, "clock": "modelled", "floor": self.floor, "rungs": self.rungs,
            "best": self.best and self.best.name, "skipped": self.skipped, "notes": self.notes,
            "cast": self.cast, "buffers": self.buffers, "interrupted": self.interrupted,
        }  # fmt: skip


def explain(
    source: Source,
    chip: str = "n150",
    *,
    batch: int | None = None,
    accuracy: bool = True,
    min_pcc: float | None = 0.99,
    seconds: float = math.inf,
    sample: Sample | None = None,
    captures: Captures | None = None,
    progress: Callable[[str], None] = lambda text: None,
    on_rung: Callable[[Rung], None] = lambda rung: None,
) -> Ladder:
    """Climb: float32 at level 0, bfloat16, level 1, level 2, trace, batch, weight formats.

    A cast that brought nothing at level 0 is taken back on top, to see what it brings there.

    Each rung is tried on top of the best setting so far; one that loses, or that misses the floor,
    is told so and not built upon. The best rung is the fastest that keeps the floor.
    """
    return _Climb(source, chip, batch, accuracy, floors(min_pcc), seconds, sample,
                  captures, progress, on_rung).climb()  # fmt: skip


class _Climb:
    def __init__(
        self,
        source: Source,
        chip: str,
        batch: int | None,
        accuracy: bool,
        wanted: Sequence[Floor],
        seconds: float,
        sample: Sample | None,
        captures: Captures | None,
        progress: Callable[[str], None],
        on_rung: Callable[[Rung], None],
    ) -> None:
        self.source = find(source) if isinstance(source, str) else source
        self.scalable = takes_batch(self.source)
        if batch is not None and not self.scalable:
            raise UsageError("the model's callable takes no batch", try_=["def make(batch): ..."])
        self.given = batch
        self.floors, self.progress, self.on_rung = list(wanted), progress, on_rung
        self.ladder = Ladder(chip)
        self.started, self.seconds, self.steps = time.monotonic(), seconds, 0
        self.known: dict[tuple[Any, ...], dict[str, float] | None] = {}
        self.sample, self.captures = sample, captures or Captures(self.source)
        self.kept: Rung | None = None
        self.made_in: torch.dtype | None = None  # the model, before any cast
        self.cast_to: Rung | None = None  # what a float32 model gains by a cast is told of this
        self._accuracy = accuracy

    def climb(self) -> Ladder:
        """All rungs, or those that were there when the user ended it."""
        try:
            self._climb()
        except KeyboardInterrupt:
            if not self.ladder.rungs:
                raise
            self.ladder.interrupted = True
            self.ladder.skipped.append("what comes after: interrupted")
        self._finish()
        return self.ladder

    def _climb(self) -> None:
        first = (self.given or 1) if self.scalable else None
        self._judge_by()
        level = "optimization_level"
        self._try("float32, level 0", "float32", {level: 0}, first)
        self._try("bfloat16", "bfloat16", {level: 0}, first)
        self._on_top("level 1", {level: 1})
        self._on_top("level 2", {level: 2})
        self._on_top("trace", {"enable_trace": True})
        kept = self._now()
        if kept[1].get(level) != 2 and kept[1].get("enable_trace"):
            # What costs more launches from the host may still win where the host launches once.
            self._on_top("level 2, traced", {level: 2})
        if self.scalable and self.given is None:
            self._batch()
        self._back_to_float32()
        for fmt in FORMATS:
            self._on_top(f"{fmt} weights", {"experimental_weight_dtype": fmt}, lossy=True)

    def _back_to_float32(self) -> None:
        """Where a cast brought nothing at level 0 it may bring nothing later, and cost accuracy."""
        short = next((rung for rung in self.ladder.rungs if rung.name == "bfloat16"), None)
        before = self.kept
        if short is None or before is None or self.made_in is not torch.float32:
            return
        self.cast_to = short
        if short.verdict == "no difference" and before.dtype == "bfloat16":
            _, settings, batch = self._now()
            self._try(_AGAIN, "float32", settings, batch)
            self.cast_to = before

    def _judge_by(self) -> None:
        if not self._accuracy:
            return
        self.progress("float32 reference")
        try:
            self.sample = self.sample or choose_sample(self.source, self.scalable)
        except UsageError as error:
            self._accuracy = False
            self.ladder.notes.append(f"accuracy was not run: {error.what}")
            return
        self.floors, note = judged(self.floors, self.sample.expected)
        asked = [f.text for f in self.floors if not f.implied and abs(f.limit) not in (1, math.inf)]
        self.ladder.floor = " and ".join(asked)
        self.ladder.notes += [note] if note else []

    def _now(self) -> tuple[str, dict[str, Any], int | None]:
        """dtype, settings and batch of the rung that was kept last."""
        if self.kept is None:
            first = (self.given or 1) if self.scalable else None
            return "bfloat16", {"optimization_level": 0}, first
        settings = {k: v for k, v in self.kept.settings.items() if k != "chip"}
        return self.kept.dtype, settings, self.kept.batch if self.scalable else None

    def _on_top(self, name: str, change: Mapping[str, Any], *, lossy: bool = False) -> None:
        dtype, settings, batch = self._now()
        self._try(name, dtype, {**settings, **change}, batch, lossy=lossy)

    def _late(self, name: str) -> bool:
        if time.monotonic() - self.started <= self.seconds:
            return False
        self.ladder.late = True
        self.ladder.skipped.append(f"{name}: the time budget of {self.seconds:.0f} s is spent")
        return True

    def _compiled(
        self, dtype: str, settings: Mapping[str, Any], batch: int | None
    ) -> tuple[Loaded, CompiledPrograms]:
        return self.captures.compile(dtype, batch, {"chip": self.ladder.chip, **settings})

    def _try(
        self,
        name: str,
        dtype: str,
        settings: dict[str, Any],
        batch: int | None,
        *,
        lossy: bool = False,
    ) -> None:
        """Compile one setting, judge it against the one kept, and keep it where it wins."""
        if self._late(name):
            return
        self.progress(name + self._left())
        try:
            loaded, compiled = self._compiled(dtype, settings, batch)
        except OutOfMemoryError as error:
            self.ladder.skipped.append(f"{name}: does not fit: {error.what}")
            return
        self.made_in, self.ladder.buffers = loaded.made_in, changed_buffers(compiled)
        traced = bool(settings.get("enable_trace"))
        costs = [estimate(p, traced=traced) for p in compiled.programs]
        size = batch or batch_of((loaded.inputs, loaded.kwargs))
        accuracy = self._measure(dtype, settings)
        met = accuracy is None or all(f.met(accuracy[f.name]) for f in self.floors)
        before = self.kept
        found = (
            None if before is None
            else difference(costs, self.ladder.costs[before.name], size, before.batch)
        )  # fmt: skip
        verdict = "first" if found is None else found.verdict
        if not met:
            verdict = "below the floor"
        # What costs accuracy must win for sure; what costs nothing must not lose.
        wins = found is None or (found.faster if lossy else found.value < 1.0)
        if name == "bfloat16" and found is not None:
            wins = not found.slower  # half the bytes, which later rungs gain from
        call, low, high = (
            sum(getattr(c, key) for c in costs)
            for key in ("call_ns", "call_low_ns", "call_high_ns")
        )
        programs = compiled.programs
        ops = sum(len(p.ops) for p in programs)
        rung = Rung(
            name, dtype, {"chip": self.ladder.chip, **settings}, size,
            size / call * 1e9, size / high * 1e9, size / low * 1e9, call,
            1.0 if found is None else 1 / found.value, found, verdict, before is None or
            (wins and met), accuracy, ops,
            sum(len(p.host_ops) for p in programs),
            moving_share(zip(programs, costs, strict=True)),
            did(compiled, before, ops, settings), obstacle(costs),
            sum(sum(g.stages.values()) for g in compiled.graphs),
        )  # fmt: skip
        self.steps += 1
        self.ladder.rungs.append(rung)
        self.ladder.costs[name], self.ladder.programs[name] = costs, programs
        if rung.kept:
            self.kept = rung
        self.on_rung(rung)

    def _left(self) -> str:
        """An estimate of the time that is left, from the rungs behind."""
        if not self.steps:
            return ""
        spent = time.monotonic() - self.started
        ahead = max(1, 8 + (self.scalable and self.given is None) - self.steps)
        return f", about {spent / self.steps * ahead:.0f} s left"

    def _measure(self, dtype: str, settings: Mapping[str, Any]) -> dict[str, float] | None:
        """Every floor's figure; levels 1 and 2, trace and batch change no numbers."""
        if not self._accuracy or self.sample is None:
            return None
        level = min(1, settings["optimization_level"])
        weights = settings.get("experimental_weight_dtype", "")
        key = (dtype, level, weights)
        if key not in self.known:
            numerics = {"optimization_level": level, **CHIP_SUMS}
            if weights:
                numerics["experimental_weight_dtype"] = weights
            loaded, compiled = self._compiled(dtype, numerics, self.sample.batch)
            output = run_once(loaded, compiled)
            expected = self.sample.expected.float()
            self.known[key] = None if output is None else {
                f.name: f.measure(output.float().reshape(expected.shape), expected)
                for f in self.floors
            }  # fmt: skip
            if output is None:
                self._accuracy = False
                self.ladder.notes.append("accuracy was not run: the model needs several graphs")
        return self.known[key]

    def _batch(self) -> None:
        """Double the batch until throughput stops growing, memory ends or time is spent."""
        dtype, settings, _ = self._now()
        traced = bool(settings.get("enable_trace"))
        best, best_rate = 1, 0.0
        for batch in _BATCHES:
            if self._late(f"batch {batch}"):
                break
            self.progress(f"batch {batch}" + self._left())
            try:
                _, compiled = self._compiled(dtype, settings, batch)
            except OutOfMemoryError:
                break
            rate = batch / sum(estimate(p, traced=traced).call_ns for p in compiled.programs)
            if best_rate and rate < best_rate * _PLATEAU:
                break
            best, best_rate = batch, rate
        if best > 1:
            self._try(f"batch {best}", dtype, settings, best)

    def _finish(self) -> None:
        ladder = self.ladder
        met = [r for r in ladder.rungs if r.verdict != "below the floor"]
        order = {r.name: i for i, r in enumerate(ladder.rungs)}
        if met:
            ladder.best = choose(
                met, ladder.differ, lambda r: loss(r.accuracy) if r.accuracy else 0.0,
                lambda r: (order[r.name],),
            )  # fmt: skip
        elif ladder.rungs:
            near = min(ladder.rungs, key=lambda r: loss(r.accuracy) if r.accuracy else 0.0)
            ladder.notes.append(
                f"no rung keeps {ladder.floor}; the most accurate is {near.name} with "
                f"{near.accuracy_text}"
            )
        if ladder.best is not None:
            tiles = padding(ladder.programs[ladder.best.name])
            ladder.notes += [tiles] if tiles else []
        ladder.cast = self._cast()
        ladder.notes += [text for text in (ladder.cast, ladder.buffers) if text]

    def _cast(self) -> str:
        """Whether to cast a float32 model, with what it brings and what it costs."""
        by_name = {r.name: r for r in self.ladder.rungs}
        wide, where = by_name.get(_AGAIN), "with these settings"
        if wide is None:
            wide, where = by_name.get("float32, level 0"), "at level 0"
        short, best = self.cast_to, self.ladder.best
        if wide is None or short is None:
            return ""
        if best is not None and best.dtype == "float32":
            return "the model stays in float32: a cast to bfloat16 would gain nothing for sure"
        gain = self.ladder.differ(wide, short).value
        measured = bool(wide.accuracy and short.accuracy)
        accuracy = f", accuracy {short.accuracy_text} instead of {wide.accuracy_text}"
        why = "the matrix engine truncates float32 operands, while a cast rounds them"
        if (
            wide.accuracy
            and short.accuracy
            and (loss(wide.accuracy) > 1.1 * loss(short.accuracy) + 1e-6)
        ):
            why = f"float32 is less accurate on the chip, because {why}"
        return (
            "the model is in float32: cast it and its inputs, model.to(torch.bfloat16): "
            f"×{gain:.2f} {where}{accuracy if measured else ''}; {why}"
        )
