"""The list of checks, and running them so that no broken file can stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from temper.doctor import cards as card_module
from temper.doctor import smi
from temper.doctor.cards import Card
from temper.doctor.finding import Finding, Report
from temper.doctor.machine import Machine

TOPICS = ("card", "driver", "link", "pages", "health", "host", "software", "by hand")


class Context:
    """What every check gets: the machine and the cards found on it."""

    def __init__(
        self, machine: Machine, *, use_tt_smi: bool = True, judge_host: bool = False
    ) -> None:
        self.machine = machine
        self.use_tt_smi = use_tt_smi
        self.judge_host = judge_host  # also without a card, as a diagnosis wants

    @cached_property
    def cards(self) -> list[Card]:
        plain = card_module.find(self.machine)
        # tt-smi takes seconds: asked only when there is a card to ask about.
        if not plain or not self.use_tt_smi:
            return plain
        output = self.machine.command("tt-smi")
        devices = smi.parse(output.text) if output.status == "ok" else []
        return card_module.find(self.machine, devices) if devices else plain

    @property
    def has_card(self) -> bool:
        return bool(self.cards)

    def level(self, level: str) -> str:
        """Without a card nothing on the host is at fault yet: it is a note for later."""
        return level if self.has_card or self.judge_host else "note"

    @property
    def translating(self) -> bool | None:
        """Whether the IOMMU translates for every card (tt-umd's rule: type begins with DMA)."""
        kinds = [self.machine.text(f"{c.path}/iommu_group/type") for c in self.cards if c.path]
        return all((kind or "").startswith("DMA") for kind in kinds) if kinds else None


Result = Iterator[Finding]
Function = Callable[[Context], Result]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    topic: str
    function: Function


CHECKS: list[Check] = []


def check(name: str, topic: str) -> Callable[[Function], Function]:
    """Register a check under its name; topics order the report."""

    def add(function: Function) -> Function:
        CHECKS.append(Check(name, topic, function))
        return function

    return add


def run(context: Context, only: Iterable[str] = ()) -> Report:
    """Run all checks, or those named."""
    load()
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
    return Report(context.machine.name, labels, tuple(findings))


def load() -> None:
    """Import the modules that register checks."""
    from temper.doctor import (  # noqa: F401 - registration is their effect
        checks_card,
        checks_hand,
        checks_health,
        checks_host,
        checks_link,
        checks_pages,
        checks_software,
    )
