"""Heat, power, clocks, memory training and heartbeat of each card."""

from __future__ import annotations

from temper import chips
from temper.chips.guide import GUIDE_TEMPERATURE_C
from temper.doctor.finding import Finding
from temper.doctor.registry import Examined, Result, check
from temper.machine.telemetry import CardReading, read_card

_COOL = "improve airflow (the guide asks for at least 30 CFM), clean filters, leave a slot free"


@check("temperature", "health")
def temperature(context: Examined) -> Result:
    """Temperatures against the board's limits."""
    for card, reading in zip(context.cards, _readings(context), strict=True):
        now = reading.temperature_c
        if now is None:
            continue
        limit = reading.temperature_limit_c
        source = "hwmon temp1_max, else the board's specification"
        if card.architecture and card.architecture.guided:
            limit = min(limit or GUIDE_TEMPERATURE_C, GUIDE_TEMPERATURE_C)
            source = "tuning guide; board specification"
        if limit is None or not -40 < now < 150:
            yield Finding(
                "temperature", "health", "note", f"{now:.0f} °C (no limit known, or implausible)",
                card=card.label,
            )  # fmt: skip
            continue
        shown, expected = f"{now:.0f} °C", f"below {limit:.0f} °C"
        unsure = (
            card.architecture is not None
            and not card.architecture.throttle_public
            and context.machine.number(f"{card.hwmon}/temp1_max") is None
        )
        if unsure:
            name = card.architecture.title if card.architecture else "the card"
            expected += f" (uncertain: {name}'s throttle limit is not public)"
        if now >= limit:
            yield Finding(
                "temperature", "health", "problem", shown, expected=expected,
                why="at this temperature the card lowers its clock", fix=_COOL,
                source=source, card=card.label,
            )  # fmt: skip
        elif now >= limit - 5:
            yield Finding(
                "temperature", "health", "warning", shown, expected=expected,
                why="under load it will throttle soon", fix=_COOL, source=source, card=card.label,
            )  # fmt: skip
        else:
            yield Finding(
                "temperature", "health", "ok", f"{shown}, limit {limit:.0f} °C", card=card.label
            )
        if reading.therm_trips:
            yield Finding(
                "temperature", "health", "warning",
                f"{reading.therm_trips} thermal trips since power-on", expected="0",
                why="the card has switched itself off from heat", fix=_COOL,
                source="tt-kmd tt_therm_trip_count", card=card.label,
            )  # fmt: skip


@check("power", "health")
def power(context: Examined) -> Result:
    """Power against the board's limit."""
    for card, reading in zip(context.cards, _readings(context), strict=True):
        now, limit = reading.power_w, reading.power_limit_w
        if card.architecture and card.architecture.guided:
            # The guide's limits are the boards' own. Of an unknown board only the higher is sure.
            board_w = (card.chip or chips.get("e150")).board_power_w
            limit = board_w if card.chip else limit or board_w
        if now is None or not limit:
            continue
        if now >= limit:
            yield Finding(
                "power", "health", "warning", f"{now:.0f} W", expected=f"below {limit:.0f} W",
                why="at its power limit the card lowers its clock",
                fix="a lower fidelity or smaller formats draw less; check cooling, since heat "
                "raises power", source="hwmon power1_max; tuning guide for Grayskull",
                card=card.label,
            )  # fmt: skip
        else:
            yield Finding("power", "health", "ok", f"{now:.0f} W of {limit:.0f} W", card=card.label)


@check("clock", "health")
def clocks(context: Examined) -> Result:
    """Whether the clock is what it should be, idle or busy."""
    for card, reading in zip(context.cards, _readings(context), strict=True):
        now, nominal = reading.clock_mhz, reading.clock_nominal_mhz
        if now is None:
            continue
        least = card.architecture.clock_min_mhz if card.architecture else 0
        shown = f"{now:.0f} MHz" + (f" of {nominal} MHz" if nominal else "")
        if reading.throttled == "power":
            yield Finding(
                "clock", "health", "warning", f"{shown}, held down by {reading.throttled}",
                expected="the full clock under load", why="times are longer than the chip can do",
                fix="see power", source="hwmon", card=card.label,
            )  # fmt: skip
        elif now <= 0 or now < least:
            yield Finding(
                "clock", "health", "warning", shown,
                expected=f"{least} to {nominal or 1350} MHz on {card.title.split()[0]}"
                if least else "a running clock",
                why="the firmware reports a clock outside its range",
                fix="reset the card with tt-smi -r, then cold boot", source="firmware tables",
                card=card.label,
            )  # fmt: skip
        else:
            idle = nominal is not None and now < 0.9 * nominal
            yield Finding(
                "clock", "health", "ok", shown + (": idle, which is no fault" if idle else ""),
                card=card.label,
            )  # fmt: skip


@check("dram", "health")
def dram_training(context: Examined) -> Result:
    """Whether every DRAM channel was trained."""
    for card in context.cards:
        if card.smi.dram_trained is None:
            continue
        if card.smi.dram_trained:
            speed = f" at {card.smi.dram_speed}" if card.smi.dram_speed else ""
            yield Finding("dram", "health", "ok", f"DRAM trained{speed}", card=card.label)
        else:
            yield Finding(
                "dram", "health", "problem", "DRAM training failed on at least one channel",
                expected="every channel trained", why="tensors on that channel are lost or wrong",
                fix="reset with tt-smi -r 0; if it stays, cold boot; then flash the firmware",
                source="tt-smi DDR_STATUS", card=card.label,
            )  # fmt: skip


@check("heartbeat", "health")
def heartbeat(context: Examined) -> Result:
    """Whether the card's controller is alive."""
    for card in context.cards:
        path = f"{card.path}/tt_heartbeat"
        first = context.machine.text(path) if card.path else None
        if not first:
            continue
        later = context.machine.text_later(path, first)
        if later is None:
            continue
        if later == first:
            yield Finding(
                "heartbeat", "health", "problem", f"the heartbeat stands still at {first[:20]}",
                expected="a number that grows", why="the card's management firmware has hung",
                fix="tt-smi -r 0, else power the machine off and on",
                source="tt-kmd tt_heartbeat", card=card.label,
            )  # fmt: skip
        else:
            yield Finding("heartbeat", "health", "ok", "firmware is alive", card=card.label)


def _readings(context: Examined) -> list[CardReading]:
    return [read_card(context.machine, card) for card in context.cards]
