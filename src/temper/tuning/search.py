"""The search: optuna proposes settings, the cost model prices them, accuracy runs where it must."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from temper.errors import OutOfMemoryError, TemperError
from temper.tuning.accuracy import loss
from temper.tuning.choice import Difference, difference
from temper.tuning.engine import ACCUMULATIONS, FIDELITIES, Engine, OutOfTime, Setting
from temper.tuning.mixed import Point
from temper.tuning.store import abandon_dead, owner
from temper.tuning.variants import FORMATS

# How long to let another process go on that is at the setting which was proposed here.
_WAIT_SECONDS = 0.2


@dataclass(frozen=True)
class Trial:
    """One setting, priced; accuracy is None where it was not run."""

    number: int
    setting: Setting
    samples_per_s: float  # modelled
    call_ns: float  # modelled
    accuracy: dict[str, float] | None
    met: bool
    formats: dict[str, str]  # by parameter
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "setting": self.setting.as_dict()}


@dataclass
class Found:
    """What a search found so far."""

    best: Trial | None = None
    trials: list[Trial] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)  # mixed assignments that were measured
    resumed: int = 0
    interrupted: bool = False
    seconds: float = 0.0


class Search:
    """One study: resumes what is stored, runs the rest of the budget."""

    def __init__(
        self,
        engine: Engine,
        study: Any,
        objective: str,
        batches: Sequence[int],
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.engine, self.study, self.objective = engine, study, objective
        self.batches = list(batches) or [0]
        self._any_batch = not batches
        # Optuna keeps a parameter's choices for good: other batches are another parameter.
        self._batch_name = f"batch of {self.batches}"
        self.progress = progress
        self.found = Found()
        self._known: dict[Setting, Trial] = {}
        self._started = False
        self._seen: set[int] = set()  # numbers of trials that were taken

    @property
    def label(self) -> str:
        """What the study is about, in words."""
        return str(self.study.user_attrs.get("label", ""))

    def value(self, trial: Trial) -> float:
        """Larger is better."""
        return trial.samples_per_s if self.objective == "throughput" else 1e9 / trial.call_ns

    def differ(self, one: Trial, other: Trial) -> Difference:
        """How much longer one trial takes than another, for what the search makes best."""
        costs = [self.engine.cost(t.setting, t.formats) for t in (one, other)]
        batches = [self.engine.batch_of(t.setting) for t in (one, other)]
        if self.objective == "latency":
            batches = [1, 1]
        return difference(costs[:1], costs[1:], *batches)

    def run(self, trials: int, seconds: float) -> Found:
        """Until the budget is spent or Ctrl-C; what was found is kept either way."""
        started = time.perf_counter()
        self.engine.deadline = time.monotonic() + seconds if trials else math.inf
        try:
            self._resume()
            self._started = True
            if trials:
                self._starts()
            while len(self.found.trials) < trials:
                if time.perf_counter() - started > seconds:
                    break
                self._one()
                self._resume()
        except KeyboardInterrupt:
            self.found.interrupted = True
        except OutOfTime:
            pass
        self.engine.deadline = math.inf
        self.found.seconds = time.perf_counter() - started
        return self.found

    def _resume(self) -> None:
        """What is stored and what other processes have added since; dead ones' trials again."""
        from optuna.trial import TrialState

        for left in abandon_dead(self.study):
            self.study.enqueue_trial(left)
        for frozen in self.study.get_trials(deepcopy=False):
            if frozen.number in self._seen:
                continue
            if frozen.state == TrialState.COMPLETE and "trial" in frozen.user_attrs:
                self._seen.add(frozen.number)
                kept = dict(frozen.user_attrs["trial"])
                try:
                    trial = Trial(**{**kept, "setting": Setting(**kept["setting"])})
                except (KeyError, TypeError):
                    continue  # another version's; measured again when it comes up
                if self._any_batch or trial.setting.batch in self.batches:
                    self._take(trial)
                    self.found.resumed += not self._started

    def _starts(self) -> None:
        """Settings that are good on most models come first."""
        if self.found.resumed:
            return
        top = self.batches[-1]
        for formats in ("bf16", "bfp_bf8", "mixed", "bfp_bf4"):
            for fidelity in ("default", "LoFi"):
                self.study.enqueue_trial(
                    {"level": 2, "trace": True, "fidelity": fidelity, "accumulation": "default",
                     self._batch_name: top, "formats": formats},
                    skip_if_exists=True,
                )  # fmt: skip

    def _one(self) -> None:
        from optuna.trial import TrialState

        asked = self.study.ask()
        asked.set_user_attr("owner", owner())
        setting = Setting(
            level=asked.suggest_categorical("level", [0, 1, 2]),
            trace=asked.suggest_categorical("trace", [False, True]),
            fidelity=asked.suggest_categorical("fidelity", list(FIDELITIES)),
            accumulation=asked.suggest_categorical("accumulation", list(ACCUMULATIONS)),
            batch=asked.suggest_categorical(self._batch_name, self.batches),
            formats=asked.suggest_categorical("formats", [*FORMATS, "mixed"]),
        )
        if self._elsewhere(asked):
            self.study.tell(asked, state=TrialState.FAIL)
            time.sleep(_WAIT_SECONDS)
            return
        asked.set_user_attr("judging", True)
        self._resume()  # what another process has just ended is not judged again
        try:
            trial = self._judge(asked.number, setting)
        except (KeyboardInterrupt, SystemExit, OutOfTime):
            self.study.tell(asked, state=TrialState.FAIL)
            raise
        except TemperError as error:
            if not isinstance(error, OutOfMemoryError):
                self.study.tell(asked, state=TrialState.FAIL)
                raise
            note = str(error).splitlines()[0]
            trial = Trial(asked.number, setting, 0.0, float("inf"), None, False, {}, note)
            asked.set_user_attr("note", note)
            self.study.tell(asked, state=TrialState.PRUNED)
            self.found.trials.append(trial)
            return
        asked.set_user_attr("trial", trial.as_dict())
        # A setting below the floor is worth nothing, however fast.
        worth = self.value(trial) if trial.met or trial.accuracy is None else 0.0
        self.study.tell(asked, worth)
        self._seen.add(asked.number)
        self._take(trial)

    def _elsewhere(self, asked: Any) -> bool:
        """Whether another process is at this very setting."""
        from optuna.trial import TrialState

        running = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return any(
            t.params == asked.params
            and (t.number < asked.number or (t.number > asked.number and "judging" in t.user_attrs))
            for t in running
        )

    def _take(self, trial: Trial) -> None:
        self.found.trials.append(trial)
        self._known[trial.setting] = trial
        best = self.found.best
        if trial.met and (best is None or self.value(trial) > self.value(best)):
            self.found.best = trial
        shown = self.found.best
        rate = f"{shown.samples_per_s:,.0f} samples/s" if shown else "nothing yet"
        self.progress(f"{len(self.found.trials)} settings, best {rate}")

    def _judge(self, number: int, setting: Setting) -> Trial:
        known = self._known.get(setting)
        if known is not None:
            return Trial(**{**known.__dict__, "number": number, "note": f"as {known.number}"})
        engine = self.engine
        uniform = "bfp_bf4" if setting.formats == "mixed" else setting.formats
        paths = engine.paths(setting)
        # The most a setting could reach: a mixed one is no faster than its fastest formats.
        quick = self._trial(number, setting, dict.fromkeys(paths, uniform), None, False)
        best = self.found.best
        # What is not slower for sure may still be chosen for its accuracy.
        if best is not None and self.differ(quick, best).slower:
            note = "not run: slower than the best"
            return Trial(**{**quick.__dict__, "note": note})
        if setting.formats != "mixed":
            formats = dict.fromkeys(paths, uniform)
            point = engine.point(setting, formats)
            return self._trial(number, setting, formats, point.accuracy, point.met)
        points = engine.solve(setting)
        self.found.points = [*self.found.points, *points]
        good = [p for p in points if p.met]
        chosen = (
            min(good, key=lambda p: p.time_ns)
            if good
            else min(points, key=lambda p: loss(p.accuracy))
        )
        return self._trial(number, setting, dict(chosen.formats), dict(chosen.accuracy), chosen.met)

    def _trial(
        self,
        number: int,
        setting: Setting,
        formats: dict[str, str],
        accuracy: Any,
        met: bool,
    ) -> Trial:
        cost = self.engine.cost(setting, formats)
        batch = self.engine.batch_of(setting)
        rate = batch / cost.call_ns * 1e9
        return Trial(
            number, setting, rate, cost.call_ns, accuracy, met,
            {p: f for p, f in formats.items() if f != "bf16"},
        )  # fmt: skip


def nearest_miss(found: Found) -> Trial | None:
    """The most accurate setting that was measured, for floors that nothing meets."""
    measured = [t for t in found.trials if t.accuracy]
    return min(measured, key=lambda t: loss(t.accuracy) if t.accuracy else 2.0, default=None)
