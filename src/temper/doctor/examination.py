"""Running the checks so that no broken file can stop the others."""

from __future__ import annotations

from collections.abc import Iterable

from temper.doctor import (  # noqa: F401 - registration is their effect
    checks_card,
    checks_hand,
    checks_health,
    checks_host,
    checks_link,
    checks_pages,
    checks_software,
)
from temper.doctor.finding import Examination, Finding
from temper.doctor.registry import CHECKS, TOPICS, Examined


def run(context: Examined, only: Iterable[str] = ()) -> Examination:
    """Run all checks, or those named."""
    wanted = set(only)
    findings: list[Finding] = []
    for entry in sorted(CHECKS, key=lambda item: TOPICS.index(item.topic)):
        if wanted and entry.name not in wanted:
            continue
        try:
            findings += entry.function(context)
        except Exception as error:  # a file nobody foresaw must not hide the other checks
            findings.append(
                Finding(
                    entry.name,
                    entry.topic,
                    "note",
                    f"this check could not finish: {type(error).__name__}: {error}"[:200],
                    fix="run 'temper doctor --capture out.tar' and report it with the archive",
                )
            )
    labels = tuple(card.label for card in context.cards)
    return Examination(context.machine.name, labels, tuple(findings))
