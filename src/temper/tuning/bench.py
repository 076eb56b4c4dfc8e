"""``temper.bench``: warm up until steady, repeat, and report wall and modelled time apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from temper.cost import ProgramCost
from temper.errors import TemperError, UsageError
from temper.machine.telemetry import CardRecorder
from temper.tuning.expected import Expected
from temper.tuning.lint import Smell, judge_samples, probe
from temper.tuning.statistics import TrialSummary, steady, summarise
from temper.tuning.subject import Subject, size_bytes, subject

MIN_WARMUP = 3  # compile, program cache, trace
_MAX_WARMUP = 30
_TRIALS = 10
_ITERATIONS = 100
_SECONDS = 20.0


@dataclass(frozen=True)
class Modelled:
    """Modelled times of one steady call, in nanoseconds, with the band of 80% of rows."""

    device_ns: float
    device_low_ns: float
    device_high_ns: float
    call_ns: float
    call_low_ns: float
    call_high_ns: float
    first_call_ns: float
    extrapolated: bool

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Bench:
    """One measured setting. ``wall`` is this host's clock; ``modelled`` is the chip's model."""

    name: str
    settings: Mapping[str, Any]
    chip: str
    batch: int
    input_bytes: int
    output_bytes: int
    wall: TrialSummary  # ns a call
    samples_ns: tuple[tuple[float, ...], ...]  # by trial
    warmup_ns: tuple[float, ...]
    warmed: bool
    first_call_ns: float  # measured, with capture and compile
    modelled: Modelled | None
    findings: tuple[Smell, ...] = ()
    expected: tuple[tuple[Expected, str], ...] = ()  # with below | within | above
    cards: tuple[dict[str, Any], ...] = field(default=())
    interrupted: bool = False  # Ctrl-C or SIGTERM came before the last trial

    @property
    def samples_per_s(self) -> float:
        """Measured on this host."""
        return self.batch / self.wall.median * 1e9

    @property
    def gb_per_s(self) -> float:
        """Measured on this host; input plus output bytes, as the tuning guide counts."""
        return (self.input_bytes + self.output_bytes) / self.wall.median

    @property
    def modelled_samples_per_s(self) -> float | None:
        """Modelled; None for what Temper did not compile."""
        return self.batch / self.modelled.call_ns * 1e9 if self.modelled else None

    @property
    def modelled_gb_per_s(self) -> float | None:
        """Modelled; input plus output bytes; None for what Temper did not compile."""
        total = self.input_bytes + self.output_bytes
        return total / self.modelled.call_ns if self.modelled else None

    @property
    def refused(self) -> bool:
        """Whether a finding forbids comparing with this measurement."""
        return any(f.refuse for f in self.findings)


def bench(
    model: Any,
    inputs: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    batch: int | None = None,
    trials: int = _TRIALS,
    iterations: int | None = None,
    seconds: float = _SECONDS,
    expected: Sequence[Expected] = (),
    lint: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> Bench:
    """Measure a model honestly.

    ``model`` is ``"file.py:callable"``, a torch module (compiled with ``options``), a compiled
    model, or any callable. ``iterations`` per trial are chosen to stay within ``seconds``.
    """
    one = subject(model, inputs, kwargs, options=options, batch=batch)
    return bench_all([one], trials, iterations, seconds, expected, lint, progress)[0]


def bench_all(
    subjects: Sequence[Subject],
    trials: int = _TRIALS,
    iterations: int | None = None,
    seconds: float = _SECONDS,
    expected: Sequence[Expected] = (),
    lint: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Bench]:
    """Measure several settings with their trials interleaved, so that drift hits all alike."""
    if trials < 2 or (iterations is not None and iterations < 1) or seconds <= 0:
        raise UsageError("bench needs at least 2 trials, 1 iteration and a positive time")
    findings = [_probed(s) if lint else [] for s in subjects]
    warmups: list[list[float]] = []
    outputs, costs = [], []
    with torch.no_grad():
        for one in subjects:
            progress(f"warming up {_label(one)}")
            warmups.append(_warm_up(one, seconds))
            output, cost = one.run_counted()
            outputs.append(size_bytes(output))
            costs.append(cost)
        counts = [
            iterations or _fitting(times[-1], trials, seconds / len(subjects)) for times in warmups
        ]
        compiles = [s.compiled.compiles if s.compiled else 0 for s in subjects]
        samples: list[list[tuple[float, ...]]] = [[] for _ in subjects]
        with CardRecorder() as recorder:
            interrupted = _take(subjects, counts, trials, samples, progress)
    results = []
    for index, one in enumerate(subjects):
        compiled = (one.compiled.compiles if one.compiled else 0) - compiles[index]
        warmed = len(warmups[index]) >= MIN_WARMUP and steady(warmups[index])
        found = [*findings[index], *judge_samples(samples[index], warmed, compiled)]
        result = Bench(
            one.name,
            one.settings,
            one.chip,
            one.batch,
            size_bytes((one.inputs, one.kwargs)),
            outputs[index],
            summarise(samples[index]),
            tuple(samples[index]),
            tuple(warmups[index]),
            warmed,
            warmups[index][0],
            _modelled(costs[index]),
            tuple(found),
            cards=tuple(recorder.summary()),
            interrupted=interrupted,
        )
        judged = tuple((e, e.judge(_figure(result, e.unit))) for e in expected)
        results.append(Bench(**{**result.__dict__, "expected": judged}))
    return results


def _take(
    subjects: Sequence[Subject],
    counts: Sequence[int],
    trials: int,
    samples: list[list[tuple[float, ...]]],
    progress: Callable[[str], None],
) -> bool:
    """Time the trials; whether the user ended them early. Two of each are the least to keep."""
    for trial in range(trials):
        progress(f"trial {trial + 1} of {trials}")
        try:
            made = [_timed(one, count) for one, count in zip(subjects, counts, strict=True)]
        except KeyboardInterrupt:
            if trial < 2:
                raise
            return True
        for taken, times in zip(samples, made, strict=True):
            taken.append(times)
    return False


def _figure(result: Bench, unit: str) -> float:
    """The figure an expected range speaks of: the chip's where modelled, else this host's."""
    if unit == "ms":
        return (result.modelled.call_ns if result.modelled else result.wall.median) / 1e6
    if unit == "samples/s":
        return result.modelled_samples_per_s or result.samples_per_s
    return result.modelled_gb_per_s or result.gb_per_s


def _probed(one: Subject) -> list[Smell]:
    if one.plain is None:
        return []
    try:
        return probe(one.plain, one.inputs, one.kwargs)
    except TemperError:
        raise
    except Exception as error:
        raise UsageError(
            f"{one.name} raised {type(error).__name__} on its inputs: {error}"
        ) from error


def _warm_up(one: Subject, seconds: float) -> list[float]:
    """At least three calls, more until steady; gives up when the time is spent."""
    times: list[float] = []
    started = time.perf_counter()
    while True:
        before = time.perf_counter_ns()
        one.run()
        times.append(float(time.perf_counter_ns() - before))
        if len(times) >= MIN_WARMUP + 1 and steady(times):
            return times
        late = time.perf_counter() - started > seconds
        if len(times) >= _MAX_WARMUP or (late and len(times) > 2 * MIN_WARMUP):
            return times


def _timed(one: Subject, count: int) -> tuple[float, ...]:
    clock, run = time.perf_counter_ns, one.run
    times = []
    for _ in range(count):
        before = clock()
        run()
        times.append(float(clock() - before))
    return tuple(times)


def _fitting(call_ns: float, trials: int, seconds: float) -> int:
    return max(1, min(_ITERATIONS, int(seconds * 1e9 / max(call_ns, 1.0) / trials)))


def _modelled(costs: Sequence[ProgramCost]) -> Modelled | None:
    if not costs:
        return None
    names = ("device_ns", "device_low_ns", "device_high_ns",
             "call_ns", "call_low_ns", "call_high_ns", "first_call_ns")  # fmt: skip
    sums = {name: float(sum(getattr(c, name) for c in costs)) for name in names}
    return Modelled(**sums, extrapolated=any(c.extrapolated for c in costs))


def _label(one: Subject) -> str:
    changed = ", ".join(f"{k}={v}" for k, v in one.settings.items())
    return f"{one.name} ({changed})" if changed else one.name
