"""Settings of a decode step under an accuracy floor: the fastest that keeps it.

Every setting is timed by the cost model, which takes no run; accuracy is measured from the fastest
on until one keeps the floor, so that few settings are run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from temper.errors import TemperError
from temper.tuning.language import LanguageCosts, LanguageTimes
from temper.tuning.language_accuracy import LanguageAccuracy, LanguageFloor, LanguageSample
from temper.tuning.language_ladder import FOUR_BITS

_WEIGHTS: dict[str, dict[str, Any]] = {
    "weights in bfp4": {"experimental_weight_dtype": "bfp_bf4"},
    "gate and up projections in bfp4, the rest in bfp8": {"weight_dtype_overrides": FOUR_BITS},
    "weights in bfp8": {"experimental_weight_dtype": "bfp_bf8"},
    "weights in bfloat16": {},
}
_CACHES: dict[str, dict[str, Any]] = {
    "cache in bfp8": {"experimental_kv_cache_dtype": "bfp_bf8"},
    "cache in bfloat16": {},
}
_SHARDS: dict[str, dict[str, Any]] = {
    "weights over the DRAM banks": {"enable_dram_shards": True},
    "weights interleaved": {"enable_dram_shards": False},
}
_FIXED = {"optimization_level": 2, "enable_trace": True}


@dataclass(frozen=True)
class LanguageTrial:
    """One setting: its modelled times, and its measured accuracy where it was run."""

    name: str
    options: Mapping[str, Any]
    times: LanguageTimes
    accuracy: LanguageAccuracy | None
    kept: bool  # whether it was run and keeps the floor


@dataclass(frozen=True)
class LanguageTuned:
    """The fastest setting that keeps the floor, and all that were timed, fastest first."""

    best: LanguageTrial
    floor: LanguageFloor
    eager: LanguageAccuracy
    trials: tuple[LanguageTrial, ...]


def tune_language(
    model: str,
    options: Mapping[str, Any],
    users: int,
    context: int,
    floor: LanguageFloor,
    progress: Callable[[str], None] = lambda _: None,
) -> LanguageTuned:
    """Time every setting, then measure from the fastest on; raises when none keeps the floor."""
    progress("sampling a text")
    sample = LanguageSample(model)
    timed = []
    for weights, cache, shards in product(_WEIGHTS, _CACHES, _SHARDS):
        name = f"{weights}, {cache}, {shards}"
        progress(name)
        chosen = {**_FIXED, **_WEIGHTS[weights], **_CACHES[cache], **_SHARDS[shards], **options}
        timed.append((name, chosen, LanguageCosts(model, chosen).times(users, context)))
    timed.sort(key=lambda one: one[2].step_ns.value)
    measured: dict[str, LanguageAccuracy] = {}  # where weights lie changes no number
    trials: list[LanguageTrial] = []
    best: LanguageTrial | None = None
    for name, chosen, times in timed:
        numbers = name.rpartition(", ")[0]
        if best is None and numbers not in measured:
            progress(f"running: {numbers}")
            measured[numbers] = sample.judge(chosen)
        found = measured.get(numbers)
        trials.append(
            LanguageTrial(name, chosen, times, found, found is not None and floor.met(found))
        )
        if best is None and trials[-1].kept:
            best = trials[-1]
    if best is None:
        near = min((t for t in trials if t.accuracy), key=_ratio)
        assert near.accuracy is not None
        raise TemperError(
            f"no setting keeps {floor.text}",
            found=f"best perplexity ×{near.accuracy.perplexity_ratio:.4f}, top-1 "
            f"{near.accuracy.top1:.3f}, pcc {near.accuracy.pcc:.5f} ({near.name}); eager bfloat16 "
            f"has ×{sample.eager.perplexity_ratio:.4f}, {sample.eager.top1:.3f}, "
            f"{sample.eager.pcc:.5f}",
            try_=["a lower floor"],
        )
    return LanguageTuned(best, floor, sample.eager, tuple(trials))


def _ratio(trial: LanguageTrial) -> float:
    return trial.accuracy.perplexity_ratio if trial.accuracy else float("inf")
