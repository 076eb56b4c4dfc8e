"""What software cannot read, with the figures for the card that was found."""

from __future__ import annotations

from temper.chips.guide import GUIDE_NEEDS
from temper.doctor.finding import Finding
from temper.doctor.registry import Examined, Result, check
from temper.machine.cards import Card


@check("by-hand", "by hand")
def by_hand(context: Examined) -> Result:
    """What no program can see: power cables, cooling, slot."""
    if not context.has_card:
        return
    seen: set[str] = set()
    for card in context.cards:
        if card.title not in seen:
            seen.add(card.title)
            yield from _for_card(card)


def _for_card(card: Card) -> Result:
    def item(name: str, text: str, source: str) -> Finding:
        return Finding(name, "by hand", "manual", text, source=source, card=card.label)

    if card.architecture and card.architecture.guided:
        boards = [card.board] if card.board in GUIDE_NEEDS else list(GUIDE_NEEDS)
        supply = ", ".join(f"{GUIDE_NEEDS[b].supply_w} W for {b}" for b in boards)
        plugs = "; ".join(f"{b}: {GUIDE_NEEDS[b].plugs}" for b in boards)
        cooling = "; ".join(f"{b}: {GUIDE_NEEDS[b].cooling}" for b in boards)
        yield item("supply", f"power supply of at least {supply}; {plugs}", "tuning guide")
        yield item("airflow", f"at least 30 CFM over the card ({cooling})", "tuning guide")
        yield item("ambient", "room between 10 and 35 °C", "Grayskull specification")
        return
    watts = f"{card.chip.board_power_w} W" if card.chip else "its board power"
    yield item(
        "supply", f"power supply with {watts} to spare for the card (the guide names none)",
        "board specification",
    )  # fmt: skip
    yield item(
        "airflow", "airflow over the card; the guide's 30 CFM is for Grayskull, more power needs "
        "more air", "tuning guide; board specification",
    )  # fmt: skip
    if card.architecture and card.architecture.bios:
        yield item("bios", card.architecture.bios, f"{card.architecture.title} guide")
