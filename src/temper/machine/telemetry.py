"""Temperature, power, clocks and link of each card, from sysfs, else from tt-smi."""

from __future__ import annotations

import csv
import io
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from temper.files import write_text
from temper.machine import smi
from temper.machine.cards import Card, find
from temper.machine.link import generation
from temper.machine.machine import LiveMachine, Machine

# A clock this far below the board's is called throttled only if heat or power is at its limit:
# an idle Wormhole lowers its clock too.
_THROTTLED_CLOCK = 0.95
_AT_LIMIT = 0.98


@dataclass(frozen=True, slots=True)
class CardReading:
    """One measured sample of one card; None where the card publishes nothing."""

    time_s: float  # seconds since the epoch
    card: int
    name: str
    bdf: str
    temperature_c: float | None
    temperature_limit_c: float | None
    power_w: float | None
    power_limit_w: float | None
    voltage_v: float | None
    current_a: float | None
    clock_mhz: float | None
    clock_nominal_mhz: int | None
    fan_rpm: float | None
    pcie_gen: int | None
    pcie_width: int | None
    dram_bytes: int | None  # size of the part; use is not published by the driver
    dram_temperature_c: float | None
    dram_trained: bool | None
    therm_trips: int | None
    throttled: str  # "", "heat" or "power"
    source: str  # sysfs or tt-smi

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


CSV_COLUMNS = tuple(CardReading.__slots__)


def csv_row(reading: CardReading) -> list[str]:
    """The values in the order of ``CSV_COLUMNS``; empty where the card publishes nothing."""
    values = reading.as_dict()
    return ["" if values[name] is None else str(values[name]) for name in CSV_COLUMNS]


def read(machine: Machine | None = None, cards: list[Card] | None = None) -> list[CardReading]:
    """One reading a card, now. Without a card: an empty list, at once."""
    host = machine or LiveMachine()
    found = find(host) if cards is None else cards
    if found and any(not card.hwmon for card in found):
        found = _with_snapshot(host, found)
    return [read_card(host, card) for card in found]


def _with_snapshot(machine: Machine, cards: list[Card]) -> list[Card]:
    """Cards with a fresh tt-smi snapshot (seconds): only for those that sysfs says nothing of."""
    machine.forget("tt-smi")
    devices = smi.parse(machine.command("tt-smi").text)
    return find(machine, devices) if devices else cards


def read_card(machine: Machine, card: Card) -> CardReading:
    """What sysfs, and a snapshot taken earlier, say of one card."""

    def scaled(name: str, divisor: float) -> float | None:
        value = machine.number(f"{card.hwmon}/{name}") if card.hwmon else None
        return None if value is None else value / divisor

    chip, snapshot = card.chip, card.smi
    temperature = _first(scaled("temp1_input", 1e3), snapshot.temperature_c)
    limit = _first(scaled("temp1_max", 1e3), snapshot.temperature_limit_c)
    if limit is None and chip is not None:
        limit = float(chip.thermal_limit_c)
    power = _first(scaled("power1_input", 1e6), snapshot.power_w)
    power_limit = _first(scaled("power1_max", 1e6), snapshot.power_limit_w)
    if power_limit is None and chip is not None:
        power_limit = float(chip.board_power_w)
    attribute = machine.number(f"{card.path}/tt_aiclk") if card.path else None
    clock = _first(None if attribute is None else float(attribute), snapshot.clock_mhz)
    nominal = chip.clock_mhz if chip else None
    return CardReading(
        time_s=time.time(),
        card=card.index,
        name=card.title,
        bdf=card.bdf,
        temperature_c=temperature,
        temperature_limit_c=limit,
        power_w=power,
        power_limit_w=power_limit,
        voltage_v=_first(scaled("in0_input", 1e3), snapshot.voltage_v),
        current_a=_first(scaled("curr1_input", 1e3), snapshot.current_a),
        clock_mhz=clock,
        clock_nominal_mhz=nominal,
        fan_rpm=_first(scaled("fan1_input", 1), snapshot.fan_rpm),
        pcie_gen=generation(machine.text(f"{card.path}/current_link_speed")),
        pcie_width=machine.number(f"{card.path}/current_link_width"),
        dram_bytes=chip.dram_total_bytes if chip else None,
        dram_temperature_c=snapshot.dram_temperature_c,
        dram_trained=snapshot.dram_trained,
        therm_trips=machine.number(f"{card.path}/tt_therm_trip_count"),
        throttled=_throttled(temperature, limit, power, power_limit, clock, nominal),
        source="sysfs" if card.hwmon else "tt-smi",
    )


def _throttled(
    temperature: float | None,
    limit: float | None,
    power: float | None,
    power_limit: float | None,
    clock: float | None,
    nominal: int | None,
) -> str:
    if temperature is not None and limit and temperature >= limit:
        return "heat"
    slow = clock is not None and nominal is not None and clock < _THROTTLED_CLOCK * nominal
    if slow and power is not None and power_limit and power >= _AT_LIMIT * power_limit:
        return "power"
    return ""


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


class CardRecorder:
    """Samples all cards in the background while a measurement runs.

    ``with Recorder(interval_s=0.5) as recorder: ...`` then ``recorder.readings`` and
    ``recorder.summary()``. Without a card no thread is started and both are empty.
    """

    def __init__(self, machine: Machine | None = None, interval_s: float = 0.5) -> None:
        self._machine = machine or LiveMachine()
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.readings: list[CardReading] = []

    def __enter__(self) -> CardRecorder:
        self._cards = find(self._machine)
        if self._cards:
            self._thread = threading.Thread(target=self._sample, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=15)

    def _sample(self) -> None:
        while True:
            self.readings += read(self._machine, self._cards)
            if self._stop.wait(self._interval_s):
                return

    def save(self, path: Path) -> None:
        """Write all readings as CSV, if there are any."""
        if not self.readings:
            return
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(CSV_COLUMNS)
        writer.writerows(csv_row(reading) for reading in self.readings)
        write_text(path, text.getvalue())

    def summary(self) -> list[dict[str, Any]]:
        """Per card: samples, range of temperature, power and clock, times it was throttled."""
        result = []
        for index in sorted({reading.card for reading in self.readings}):
            own = [reading for reading in self.readings if reading.card == index]
            result.append(
                {
                    "card": index,
                    "name": own[0].name,
                    "samples": len(own),
                    "temperature_c": _range([r.temperature_c for r in own]),
                    "power_w": _range([r.power_w for r in own]),
                    "clock_mhz": _range([r.clock_mhz for r in own]),
                    "throttled_samples": sum(bool(r.throttled) for r in own),
                }
            )
        return result


def _range(values: list[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {"min": min(known), "mean": sum(known) / len(known), "max": max(known)}
