"""The list of checks, and what each of them is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from temper.doctor.finding import Finding
from temper.machine import cards as card_module
from temper.machine import smi
from temper.machine.cards import Card
from temper.machine.machine import Machine

TOPICS = ("card", "driver", "link", "pages", "health", "host", "software", "by hand")


class Examined:
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
Function = Callable[[Examined], Result]


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, topic and function."""

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
