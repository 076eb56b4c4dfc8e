"""Advice for whatever was opened: a run is costed again, a card's CSV speaks by its columns."""

from __future__ import annotations

from temper.report.advice import Advice
from temper.report.advise_run import advise_run
from temper.report.advise_table import advise_table
from temper.report.judge import judge
from temper.run.opening import Profile


def advise_profile(profile: Profile) -> list[Advice]:
    """Best first. The cost model is loaded only for a run that has programs to cost."""
    if profile.run is not None:
        return advise_run(profile.run)

    return advise_table(*judge(profile.table))
