"""Trials compiled for real before one is chosen, and why a faster figure is passed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from temper.cost import ProgramCost
from temper.tuning.accuracy import loss
from temper.tuning.choice import Difference, choose
from temper.tuning.search import Found, Search, Trial


@dataclass(frozen=True)
class Verified:
    """A trial that was compiled for real: its placed program's cost and its accuracy."""

    trial: Trial
    names: Mapping[str, str]
    overrides: Mapping[str, str]
    cost: ProgramCost
    accuracy: Mapping[str, float]


def effort(trial: Trial) -> tuple[float, ...]:
    """How much a setting asks of its user: fewer changes from what is usual come first."""
    setting = trial.setting
    return (
        len(set(trial.formats.values())) + (setting.formats == "mixed"),
        (setting.fidelity != "default") + (setting.accumulation != "default"),
        setting.batch,
        setting.level,
        setting.trace,
    )


def candidates(found: Found, search: Search) -> list[Trial]:
    """Trials to compile for real: the fastest, the best uniform, the best among the equals."""
    ranked = sorted((t for t in found.trials if t.met), key=search.value, reverse=True)
    ranked = list({(t.setting, str(t.formats)): t for t in ranked}.values())
    uniform = next((t for t in ranked if t.setting.formats != "mixed"), ranked[0])
    chosen = choose(ranked, search.differ, lambda t: loss(t.accuracy or {}), effort)
    first = list(dict.fromkeys(id(t) for t in (ranked[0], uniform, chosen)))
    by_id = {id(t): t for t in ranked}
    return [by_id[i] for i in first] + [t for t in ranked if id(t) not in first]


def equals(
    taken: Verified, verified: Sequence[Verified], differ: Callable[[Any, Any], Difference]
) -> list[str]:
    """Why a faster figure was passed over."""
    said = []
    for other in verified:
        found = differ(other, taken)
        if other is taken or found.value >= 1.0:
            continue
        said.append(
            f"no difference to {other.trial.setting.text}: its time is {found.value:.3f} times "
            f"this one's ({found.low:.3f} to {found.high:.3f}), with "
            + ", ".join(f"{k} {v:.5f}" for k, v in other.accuracy.items())
        )
    return said
