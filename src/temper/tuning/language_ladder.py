"""The ladder of a decode step: one choice more on each rung, and what it brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from temper.tuning.language import LanguageCosts, LanguageTimes
from temper.tuning.language_accuracy import LanguageAccuracy, LanguageSample

# Projections of a gated layer that bear four bits best (EXPERT 4.3), by names in use.
FOUR_BITS = {"default": "bfp_bf8", "*gate_proj*": "bfp_bf4", "*up_proj*": "bfp_bf4"}

# Each rung adds its options to those before it.
RUNGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("level 0: everything in DRAM, bfloat16", {"optimization_level": 0}),
    ("level 1: fusion, ttnn's compute configs", {"optimization_level": 1}),
    ("level 2: activations in SRAM", {"optimization_level": 2, "enable_dram_shards": False}),
    # Before formats: while the host is behind, nothing that the device saves would show.
    ("trace", {"enable_trace": True}),
    ("weights over the DRAM banks", {"enable_dram_shards": True}),
    ("weights in bfp8", {"experimental_weight_dtype": "bfp_bf8"}),
    ("cache in bfp8", {"experimental_kv_cache_dtype": "bfp_bf8"}),
    ("gate and up projections in bfp4", {"experimental_weight_dtype": "",
                                         "weight_dtype_overrides": FOUR_BITS}),
)  # fmt: skip

# Options that change where and when, and no number.
_SAME_NUMBERS = {"enable_trace", "enable_dram_shards"}


@dataclass(frozen=True)
class LanguageRung:
    """One rung: its options so far, the times, how many times faster than the one before, and its
    accuracy where that was measured."""

    name: str
    options: Mapping[str, Any]
    times: LanguageTimes
    gain: float
    accuracy: LanguageAccuracy | None = None


def ladder(
    model: str,
    options: Mapping[str, Any],
    users: int,
    context: int,
    progress: Callable[[str], None] = lambda _: None,
    sample: LanguageSample | None = None,
) -> list[LanguageRung]:
    """Every rung, from what a first call gives to what an expert would run.

    Times are modelled; accuracy is measured on ``sample``, where one is given.
    """
    fixed = {k: v for k, v in options.items() if k != "optimization_level"}
    chosen: dict[str, Any] = {}
    found: list[LanguageRung] = []
    for name, more in RUNGS:
        chosen = {**chosen, **more}
        progress(name)
        times = LanguageCosts(model, {**chosen, **fixed}).times(users, context)
        before = found[-1].times.step_ns.value if found else 0.0
        accuracy = found[-1].accuracy if found else None
        if sample is not None and (not found or set(more) - _SAME_NUMBERS):
            progress(f"{name}: accuracy")
            accuracy = sample.judge({**chosen, **fixed})
        gain = before / times.step_ns.value
        found.append(LanguageRung(name, dict(chosen), times, gain, accuracy))
    return found
