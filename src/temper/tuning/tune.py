"""Tuning a model: search, verify by a real compile, repair, and give the reasons."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from temper import chips
from temper.errors import TemperError, UsageError
from temper.tuning import store
from temper.tuning.accuracy import Floor, loss
from temper.tuning.batch import tune_batch
from temper.tuning.choice import Difference, choose, difference
from temper.tuning.engine import Engine, Setting
from temper.tuning.globs import compress
from temper.tuning.mixed import Point, front
from temper.tuning.prepared import Source
from temper.tuning.sample import VALUES
from temper.tuning.search import Found, Search, Trial, nearest_miss
from temper.tuning.verified import Verified, candidates, effort, equals

OBJECTIVES = ("throughput", "latency")
# A setting that does not get below this share of the time is no gain.
_GAIN = 0.995
# How many settings that keep the floor are compiled for real before one is chosen.
_VERIFIED = 3


@dataclass(frozen=True)
class Tuned:
    """The verified winner and everything that led to it."""

    model: str
    chip: str
    dtype: str
    objective: str
    floors: tuple[str, ...]
    setting: Setting
    batch: int
    overrides: Mapping[str, str]
    samples_per_s: float  # modelled, of the real compile
    low_samples_per_s: float
    high_samples_per_s: float
    call_ns: float
    accuracy: Mapping[str, float]  # measured, of the real compile
    start_samples_per_s: float  # modelled: bfloat16 at level 0 without a trace, same batch
    reasons: tuple[str, ...]
    pareto: tuple[Point, ...]
    trial: int
    found: Found
    notes: tuple[str, ...] = ()  # what the accuracy rests on, where that is not the usual

    def as_dict(self) -> dict[str, Any]:
        found = self.found
        return {
            **{k: v for k, v in self.__dict__.items() if k not in ("found", "setting")},
            "setting": self.setting.as_dict(),
            "overrides": dict(self.overrides),
            "accuracy": dict(self.accuracy),
            "trials": len(found.trials),
            "resumed": found.resumed,
            "interrupted": found.interrupted,
            "seconds": found.seconds,
        }


def tune(
    source: Source,
    chip: str = "n150",
    *,
    floors: Sequence[Floor],
    objective: str = "throughput",
    batches: Sequence[int] | None = None,
    dtype: str = "bfloat16",
    samples: int | None = None,
    options: Mapping[str, Any] | None = None,
    trials: int = 200,
    seconds: float = 600.0,
    study: str = "tune.db",
    label: str = "",
    progress: Callable[[str], None] = lambda text: None,
) -> Tuned:
    """Search for the fastest setting that keeps the floors; raises when nothing does."""
    with _opened(
        source, chip, floors, objective, dtype, samples, options, study, label, progress
    ) as (engine, opened, name, texts):
        sizes = _batches(engine, opened, batches, objective, progress)
        search = Search(engine, opened, objective, sizes, progress)
        found = search.run(trials, seconds)
        if found.best is None:
            raise _nothing(found, texts)
        return finish(engine, search, found, name, objective, texts)


def replay_trial(
    source: Source,
    chip: str,
    number: int,
    *,
    floors: Sequence[Floor],
    objective: str = "throughput",
    batches: Sequence[int] | None = None,
    dtype: str = "bfloat16",
    samples: int | None = None,
    options: Mapping[str, Any] | None = None,
    study: str = "tune.db",
    label: str = "",
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[Trial, dict[str, Any]]:
    """A stored trial, compiled for real: what was stored, and what comes out now."""
    with _opened(
        source, chip, floors, objective, dtype, samples, options, study, label, progress
    ) as (engine, opened, _, _):
        search = Search(engine, opened, objective, batches or [])
        search.run(0, 0.0)
        trial = next((t for t in search.found.trials if t.number == number), None)
        if trial is None:
            numbers = [t.number for t in search.found.trials]
            others = [label for label in store.labels(opened) if label != search.label]
            raise UsageError(
                f"the study has no completed trial {number} of this model and goal",
                given=search.label,
                allowed=f"{min(numbers)} to {max(numbers)}" if numbers else "none yet",
                others="; ".join(others),
            )
        names = dict.fromkeys(engine.paths(trial.setting), "bf16") | trial.formats
        cost, accuracy = engine.verify(trial.setting, compress(names))
        rate = engine.batch_of(trial.setting) / cost.call_ns * 1e9
        return trial, {"samples_per_s": rate, "call_ns": cost.call_ns, "accuracy": accuracy}


@contextlib.contextmanager
def _opened(
    source: Source,
    chip: str,
    floors: Sequence[Floor],
    objective: str,
    dtype: str,
    samples: int | None,
    options: Mapping[str, Any] | None,
    study: str,
    label: str,
    progress: Callable[[str], None],
) -> Iterator[tuple[Engine, Any, str, list[str]]]:
    """The engine and its study, with the sensitivities that are stored."""
    if objective not in OBJECTIVES:
        raise UsageError(f"no objective {objective!r}", allowed=OBJECTIVES)
    board = chips.get(chip).name
    name = label or (source if isinstance(source, str) else getattr(source, "__name__", "model"))
    engine = Engine(source, board, floors, dtype, samples, dict(options or {}), progress)
    texts = [f.text for f in floors if f.limit > -1 and not f.implied]
    fixed = [f"{k}={v}" for k, v in sorted((options or {}).items())]
    goal = [board, dtype, objective, *texts, *fixed]
    mark = store.fingerprint(engine.built(1, engine.samples), goal)
    with store.open_study(study, mark, ", ".join([name, *goal])) as opened:
        engine.energies = store.stored_energies(opened)
        engine.keep_energies = lambda table: store.keep_energies(opened, table)
        yield engine, opened, name, texts


def _batches(
    engine: Engine,
    study: Any,
    given: Sequence[int] | None,
    objective: str,
    progress: Callable[[str], None],
) -> list[int]:
    """The batches to search: as given, 1 for latency, else the best of the batch curve."""
    if given:
        if not engine.scalable and any(b > 1 for b in given):
            raise UsageError("the model's callable takes no batch", try_=["def make(batch): ..."])
        return list(given) if engine.scalable else [0]
    if not engine.scalable:
        return [0]
    if objective == "latency":
        return [1]
    stored = study.user_attrs.get("batches")
    if stored:
        return [int(b) for b in stored]
    progress("batch curve")
    options = {
        **engine.options, "chip": engine.chip, "optimization_level": 2, "enable_trace": True,
    }  # fmt: skip
    curve = tune_batch(engine.source, options, dtype=engine.dtype, limit=256, progress=progress)
    sizes = sorted({curve.quickest_near_best, curve.best})
    study.set_user_attr("batches", sizes)
    return sizes


def _nothing(found: Found, texts: Sequence[str]) -> TemperError:
    near = nearest_miss(found)
    if near is None or near.accuracy is None:
        return TemperError(
            "no setting was measured before the budget ended", try_=["more --minutes or --trials"]
        )
    figures = ", ".join(f"{k} {v:.6f}" for k, v in near.accuracy.items())
    return TemperError(
        f"no setting keeps {' and '.join(texts)}",
        found=f"best {figures} at {near.samples_per_s:,.0f} samples/s modelled "
        f"({near.setting.text})",
        try_=[_lower(near.accuracy), "--dtype float32"],
    )


def _lower(accuracy: Mapping[str, float]) -> str:
    """The floor that the nearest miss would keep."""
    if "pcc" in accuracy:
        return f"--min-pcc {int(accuracy['pcc'] * 1e5) / 1e5}"
    return f"--min-pcc {int((1 - loss(accuracy)) * 1e5) / 1e5} (a relative RMS error of " \
           f"{accuracy['rms']:.3g})"  # fmt: skip


def finish(
    engine: Engine, search: Search, found: Found, name: str, objective: str, texts: Sequence[str]
) -> Tuned:
    """Compile the best few for real, each placed anew, and choose among those that keep the floor.

    Formats change what fits SRAM, which only a real compile sees; so the best uniform format is
    always among them, and the result is no slower than it.
    """
    verified: list[Verified] = []
    for trial in candidates(found, search):
        names = dict.fromkeys(engine.paths(trial.setting), "bf16") | trial.formats
        overrides = compress(names)
        engine.progress(f"compiling trial {trial.number} for real")
        cost, accuracy = engine.verify(trial.setting, overrides)
        if engine.met(accuracy):
            verified.append(Verified(trial, names, overrides, cost, accuracy))
        if len(verified) >= _VERIFIED:
            break
    if not verified:
        raise TemperError(
            f"no setting keeps {' and '.join(texts)} when compiled for real",
            found=", ".join(f"{k} {v:.6f}" for k, v in accuracy.items()),
            try_=["a lower floor", "more --trials"],
        )

    def differ(one: Verified, other: Verified) -> Difference:
        sizes = [engine.batch_of(v.trial.setting) for v in (one, other)]
        return difference(
            [one.cost], [other.cost], *(sizes if objective == "throughput" else [1, 1])
        )

    taken = choose(verified, differ, lambda v: loss(v.accuracy), lambda v: effort(v.trial))
    best, cost = taken.trial, taken.cost
    setting = best.setting
    batch = engine.batch_of(setting)
    plain = Setting(level=0, trace=False, batch=setting.batch)
    return Tuned(
        name,
        engine.chip,
        engine.dtype,
        objective,
        tuple(texts),
        setting,
        batch,
        taken.overrides,
        batch / cost.call_ns * 1e9,
        batch / cost.call_high_ns * 1e9,
        batch / cost.call_low_ns * 1e9,
        cost.call_ns,
        taken.accuracy,
        batch / engine.cost(plain).call_ns * 1e9,
        (*equals(taken, verified, differ), *reasons(engine, best, taken.names)),
        tuple(front(found.points)),
        best.number,
        found,
        tuple(filter(None, (engine.note, _certainty(engine, taken.accuracy), _cast(engine)))),
    )


def _cast(engine: Engine) -> str:
    """What was done to a float32 model before it was tuned."""
    if engine.dtype != "bfloat16" or not engine.was_float32():
        return ""
    return (
        "the model is in float32 and was cast first; do the same: model.to(torch.bfloat16), inputs "
        "too. The matrix engine truncates float32 operands, while a cast rounds them"
    )


def _certainty(engine: Engine, accuracy: Mapping[str, float]) -> str:
    """The interval of the correlation, where the sample is smaller than statistics ask for."""
    if "pcc" not in accuracy or engine.sample.values >= VALUES:
        return ""
    low, high = engine.sample.interval(accuracy["pcc"])
    return f"pcc {low:.4f} to {high:.4f} with 95% certainty: {engine.sample.text}"


def reasons(engine: Engine, best: Trial, names: Mapping[str, str]) -> list[str]:
    """For each choice, what the alternative would cost or gain, by the cost model."""
    setting, now = best.setting, engine.cost(best.setting, best.formats).call_ns

    def other(**changes: Any) -> float:
        changed = Setting(**{**setting.__dict__, **changes})
        formats = None if "formats" in changes else best.formats
        return engine.cost(changed, formats).call_ns / now

    said = []
    for level in (0, 1, 2):
        if level != setting.level:
            said.append(
                f"level {setting.level}: level {level} takes {other(level=level):.2f} times as long"
            )
    word = "with" if not setting.trace else "without"
    said.append(f"trace {'on' if setting.trace else 'off'}: {word} it a call takes "
                f"{other(trace=not setting.trace):.2f} times as long")  # fmt: skip
    quick = other(fidelity="LoFi")
    if setting.fidelity == "LoFi":
        slow = other(fidelity="default")
        said.append(f"fidelity LoFi: the default takes {slow:.2f} times as long")
    elif quick > _GAIN:
        said.append(f"fidelity {setting.fidelity}: LoFi gains nothing ({quick:.2f} times as long)")
    else:
        point = _accuracy(engine, setting, best.formats, fidelity="LoFi")
        said.append(
            f"fidelity {setting.fidelity}: LoFi would take {quick:.2f} times as long, with {point}"
        )
    counts = {f: sum(v == f for v in names.values()) for f in dict.fromkeys(names.values())}
    held = ", ".join(f"{n} in {f}" for f, n in counts.items())
    plain = other(formats="bf16")
    said.append(f"weights {held}: all in bf16 take {plain:.2f} times as long")
    if set(names.values()) != {"bfp_bf4"} and names:
        least = other(formats="bfp_bf4")
        point = _accuracy(engine, setting, dict.fromkeys(names, "bfp_bf4"))
        said.append(f"not all in bfp_bf4: {least:.2f} times as long, with {point}")
    if setting.batch:
        said.append(f"batch {setting.batch}: the best of the batch curve or of those given")
    return said


def _accuracy(engine: Engine, setting: Setting, formats: Mapping[str, str], **changes: Any) -> str:
    changed = Setting(**{**setting.__dict__, **changes, "formats": "mixed"})
    point = engine.point(changed, formats)
    figures = ", ".join(f"{k} {v:.5f}" for k, v in point.accuracy.items())
    return figures + ("" if point.met else ", below the floor")
