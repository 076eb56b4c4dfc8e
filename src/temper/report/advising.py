"""Advice for whatever was opened: a run is costed again, a card's CSV speaks by its columns."""

from __future__ import annotations

from temper.report.suggestion import Suggestion
from temper.run.opening import Profile


def advise_profile(profile: Profile) -> list[Suggestion]:
    """Best first. The cost model is loaded only for a run that has programs to cost."""
    if profile.run is not None:
        from temper.report.advice import advise

        return advise(profile.run)
    from temper.report.card_advice import advise_table

    return advise_table(profile.table)
