"""Batch tuning: throughput, latency and memory by batch, until it stops paying or fitting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from temper import chips
from temper.compiler.pipeline import CompiledPrograms, compile_model
from temper.cost import estimate
from temper.errors import OutOfMemoryError, UsageError
from temper.frontdoor.loader import find, takes_batch
from temper.program.memory_plan import plan
from temper.tuning.expected import GUIDE_BATCHES
from temper.tuning.prepared import Source, prepared

# A doubled batch must pay this much, twice in a row, or throughput is on its plateau.
_PAYS = 1.02
_FALLS = 0.97
# A smaller batch within this of the best is as good, and quicker.
_AS_GOOD = 0.98
# How closely the largest batch is found, and in how many tries.
_NEAR = 0.05
_TRIES = 8
_FAR = 8
# Share of activation bytes in SRAM that counts as leaving it.
_LEFT_SRAM = 0.10


@dataclass(frozen=True)
class BatchPoint:
    """One batch; times are modelled, nothing was run."""

    batch: int
    samples_per_s: float
    low_samples_per_s: float
    high_samples_per_s: float
    latency_ns: float
    sram_bytes_per_core: int
    dram_bytes: int
    sram_share: float  # of the bytes of activations

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class BatchCurve:
    """All batches tried, the best, and why."""

    chip: str
    points: tuple[BatchPoint, ...]  # by batch
    best: int
    quickest_near_best: int  # the smallest batch within 2% of the best throughput
    ended: str  # what stopped the sweep
    reason: str
    workload: str  # stateless | stateful | "" for other models
    advice: str  # the guide's advice, compared

    def point(self, batch: int) -> BatchPoint:
        return next(p for p in self.points if p.batch == batch)

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


def tune_batch(
    source: Source,
    options: Mapping[str, Any] | None = None,
    *,
    dtype: str = "bfloat16",
    limit: int = 4096,
    to_the_end: bool = False,
    workload: str = "",
    progress: Callable[[str], None] = lambda text: None,
) -> BatchCurve:
    """Double from 1, look between the best and its neighbours, stop where it ends.

    ``to_the_end`` goes on over the plateau until memory ends and finds the largest batch.
    """
    function = find(source) if isinstance(source, str) else source
    if not takes_batch(function):
        raise UsageError("the model's callable takes no batch", try_=["def make(batch): ..."])
    if limit < 1:
        raise UsageError("the largest batch to try is at least 1")
    sweep = _Sweep(source, dict(options or {}), dtype, progress)
    ended = sweep.double(limit, to_the_end)
    sweep.between(limit)
    points = tuple(sorted(sweep.points.values(), key=lambda p: p.batch))
    if not points:
        assert sweep.failure is not None
        raise sweep.failure
    best = max(points, key=lambda p: p.samples_per_s)
    near = next(p for p in points if p.samples_per_s >= _AS_GOOD * best.samples_per_s)
    kind = workload or sweep.workload
    return BatchCurve(
        sweep.chip, points, best.batch, near.batch, ended, _reason(points, best), kind,
        _advice(kind, best.batch, near.batch),
    )  # fmt: skip


class _Sweep:
    def __init__(
        self, source: Source, options: dict[str, Any], dtype: str, progress: Callable[[str], None]
    ) -> None:
        self.source, self.options, self.dtype, self.progress = source, options, dtype, progress
        self.points: dict[int, BatchPoint] = {}
        self.failure: OutOfMemoryError | None = None
        self.too_large: int | None = None
        self.workload = ""
        self.chip = ""

    def attempt(self, batch: int) -> BatchPoint | None:
        """The point of a batch; None when it does not fit."""
        if batch in self.points:
            return self.points[batch]
        if self.too_large is not None and batch >= self.too_large:
            return None
        self.progress(f"batch {batch}")
        loaded = prepared(self.source, batch, self.dtype)
        try:
            compiled = compile_model(
                loaded.model, loaded.inputs, loaded.kwargs, self.options, cached=True
            )
        except OutOfMemoryError as error:
            self.failure, self.too_large = error, batch
            return None
        self.workload = self.workload or _workload(compiled)
        self.chip = compiled.programs[0].chip
        self.points[batch] = point(compiled, batch)
        return self.points[batch]

    def double(self, limit: int, to_the_end: bool) -> str:
        batch, best, flat = 1, 0.0, 0
        ended = f"the limit of {limit} was reached"
        while batch <= limit:
            found = self.attempt(batch)
            if found is None:
                break
            flat = flat + 1 if found.samples_per_s < _PAYS * best else 0
            best = max(best, found.samples_per_s)
            if flat >= 2:
                falls = found.samples_per_s < _FALLS * best
                word = "falls" if falls else "stays flat"
                ended = f"throughput {word} from batch {batch // 4} on"
                break
            batch *= 2
        if to_the_end and self.points:
            self._largest(limit)
        if self.too_large is None:
            return ended
        return f"memory ends at batch {self.too_large}: {_first_line(self.failure)}"

    def _largest(self, limit: int) -> None:
        """DRAM grows by nearly the same amount a sample: go where it would end, to 5%.

        Huge batches take long to place, so the line is first drawn from a batch eight times
        larger, then checked a little below its end and a little above.
        """
        share = 0.8
        for _ in range(_TRIES):
            good = max(self.points)
            bad = self.too_large or limit + 1
            if bad - good <= max(1, good * _NEAR):
                return
            end = self._predicted() * share
            if end > good * _FAR:
                batch = good * _FAR
            else:
                batch, share = int(end), 1.0
            self.attempt(batch if good < batch < bad else (good + bad) // 2)

    def _predicted(self) -> int:
        last = sorted(self.points)[-2:]
        if len(last) < 2:
            return 2 * last[-1]
        before, after = (self.points[b] for b in last)
        each = (after.dram_bytes - before.dram_bytes) / (after.batch - before.batch)
        if each <= 0:
            return _FAR * after.batch + 1
        chip = chips.get(self.chip)
        room = chip.dram_banks * chip.dram_bank_bytes - after.dram_bytes
        return after.batch + int(room / each)

    def between(self, limit: int) -> None:
        """Around the best batch, three quarters and one and a half of it, while they win."""
        for _ in range(3):
            best = max(self.points.values(), key=lambda p: p.samples_per_s, default=None)
            if best is None or best.batch < 2:
                return
            below = max((b for b in self.points if b < best.batch), default=best.batch)
            above = min((b for b in self.points if b > best.batch), default=2 * best.batch)
            for batch in ((below + best.batch) // 2, (best.batch + above) // 2):
                if batch <= limit:
                    self.attempt(batch)
            if max(self.points.values(), key=lambda p: p.samples_per_s) is best:
                return


def point(compiled: CompiledPrograms, batch: int) -> BatchPoint:
    """Modelled figures of a compiled model."""
    traced = bool(compiled.graphs[0].options["enable_trace"])
    costs = [estimate(p, traced=traced) for p in compiled.programs]
    call, low, high = (
        sum(getattr(c, n) for c in costs) for n in ("call_ns", "call_low_ns", "call_high_ns")
    )
    plans = [plan(p) for p in compiled.programs]
    held = [
        p.spec(name) for p in compiled.programs for op in p.ops for name in op.outputs
    ]  # fmt: skip
    total = sum(s.size_bytes for s in held) or 1
    return BatchPoint(
        batch, batch / call * 1e9, batch / high * 1e9, batch / low * 1e9, call,
        max(p.sram_high_water for p in plans), max(p.dram_high_water for p in plans),
        sum(s.size_bytes for s in held if s.memory.buffer == "sram") / total,
    )  # fmt: skip


def _workload(compiled: CompiledPrograms) -> str:
    """The guide's two kinds: elementwise work, and table look-ups; neither has matrices."""
    ops = [op for p in compiled.programs for op in p.ops]
    if any(op.info.matrix for op in ops):
        return ""
    return "stateful" if any(op.kind == "Embedding" for op in ops) else "stateless"


def _reason(points: tuple[BatchPoint, ...], best: BatchPoint) -> str:
    larger = [p for p in points if p.batch > best.batch]
    if not larger:
        return f"throughput still grows at batch {best.batch}"
    # SRAM is left gradually: look as far as twice the best batch.
    after = [p for p in larger if p.batch <= 2 * best.batch or p is larger[0]][-1]
    lost = best.sram_share - after.sram_share
    falls = after.samples_per_s < _AS_GOOD * best.samples_per_s
    if falls and lost >= _LEFT_SRAM:
        return (
            f"batch {best.batch} wins because its activations stay in SRAM: "
            f"{best.sram_share:.0%} of their bytes, {after.sram_share:.0%} at batch {after.batch}; "
            "the rest crosses DRAM"
        )
    if falls:
        return f"batch {after.batch} is slower per sample: its ops divide worse over the cores"
    return f"larger batches gain nothing: the chip is busy at batch {best.batch}"


def _advice(workload: str, best: int, near: int) -> str:
    if workload not in GUIDE_BATCHES:
        return ""
    low, high = GUIDE_BATCHES[workload]
    said = f"the guide advises {low} to {high} for {workload} work"
    if near <= high and best >= low:
        return f"{said}: agrees"
    side = "larger" if near > high else "smaller"
    return f"{said}; the model of this chip prefers a {side} batch ({near} to {best})"


def _first_line(error: Exception | None) -> str:
    return str(error).splitlines()[0] if error else ""
