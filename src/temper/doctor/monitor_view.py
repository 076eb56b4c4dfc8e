"""The monitor's screen: one panel a card, from readings and a short history."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from temper.machine.machine import printable
from temper.machine.telemetry import CardReading

if TYPE_CHECKING:
    from rich.console import RenderableType

_BARS = "▁▂▃▄▅▆▇█"
_BAR_WIDTH = 20


def cells(reading: CardReading) -> dict[str, str]:
    """The values of one reading as text; ``-`` where the card publishes nothing."""
    return {
        "temperature": _of(reading.temperature_c, reading.temperature_limit_c, "°C"),
        "power": _of(reading.power_w, reading.power_limit_w, "W"),
        "clock": _of(reading.clock_mhz, reading.clock_nominal_mhz, "MHz"),
        "core": _core(reading),
        "fan": "-" if reading.fan_rpm is None else f"{reading.fan_rpm:.0f} rpm",
        "link": _link(reading),
        "memory": _memory(reading),
        "state": f"THROTTLED by {reading.throttled}" if reading.throttled else "ok",
    }


def plain_lines(readings: Iterable[CardReading]) -> list[str]:
    """``--once``: a few lines a card, readable in a log."""
    lines = []
    for reading in readings:
        lines.append(
            f"card {reading.card}  {reading.name}  {printable(reading.bdf)}  ({reading.source})"
        )
        lines += [f"  {name:<12} {text}" for name, text in cells(reading).items()]
    return lines


class History:
    """The last readings of each card, for the small curves."""

    def __init__(self, length: int = 60) -> None:
        self._values: dict[tuple[int, str], deque[float]] = {}
        self._length = length

    def add(self, readings: Iterable[CardReading]) -> None:
        for reading in readings:
            for name in ("temperature_c", "power_w", "clock_mhz"):
                value = getattr(reading, name)
                if value is not None:
                    key = (reading.card, name)
                    self._values.setdefault(key, deque(maxlen=self._length)).append(value)

    def curve(self, card: int, name: str, top: float | None, width: int) -> str:
        """Sparkline from 0 to the limit, so that heights can be compared over time."""
        values = list(self._values.get((card, name), ()))[-width:]
        highest = max([top or 0.0, *values]) or 1.0
        return "".join(_BARS[min(7, max(0, int(8 * v / highest)))] for v in values)


def screen(
    readings: list[CardReading], history: History, interval_s: float, width: int
) -> RenderableType:
    """The full screen."""
    from rich.console import Group
    from rich.text import Text

    clock = time.strftime("%H:%M:%S")
    title = Text.assemble(
        ("temper monitor", "bold"), f"  {clock}  every {interval_s:g} s, measured; q or Ctrl-C ends"
    )
    title.truncate(width, overflow="ellipsis")
    return Group(title, *(_panel(reading, history, width) for reading in readings))


def _panel(reading: CardReading, history: History, width: int) -> RenderableType:
    from rich import box
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    texts = cells(reading)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", width=11, no_wrap=True)
    grid.add_column(min_width=18, no_wrap=True)
    grid.add_column(width=_BAR_WIDTH, no_wrap=True)
    grid.add_column(no_wrap=True, overflow="crop")
    rows: Mapping[str, tuple[str, float | None, float | None]] = {
        "temperature": ("temperature_c", reading.temperature_c, reading.temperature_limit_c),
        "power": ("power_w", reading.power_w, reading.power_limit_w),
        "clock": ("clock_mhz", reading.clock_mhz, reading.clock_nominal_mhz),
    }
    room = max(0, width - 62)
    for label, (name, value, limit) in rows.items():
        style = "cyan" if label == "clock" else _style(value, limit)
        bar = Text(_bar(value, limit), style=style)
        curve = Text(history.curve(reading.card, name, limit, room), style=style)
        grid.add_row(label, Text(texts[label], style=style), bar, curve)
    names = {"link": "", "memory": "DRAM ", "core": "core ", "fan": "fan "}
    facts = [f"{name}{texts[key]}" for key, name in names.items() if texts[key] != "-"]
    lines = Text(" · ".join(facts), overflow="fold")
    outer = Table.grid()
    outer.add_row(grid)
    outer.add_row(lines)
    head = f" card {reading.card} · {reading.name} · {printable(reading.bdf) or 'no PCI address'} "
    state = Text(f" {texts['state']} ", style="bold red" if reading.throttled else "green")
    return Panel(
        outer, title=head, title_align="left", subtitle=state, subtitle_align="right",
        box=box.ROUNDED, border_style="red" if reading.throttled else "dim",
    )  # fmt: skip


def _style(value: float | None, limit: float | None) -> str:
    if value is None or not limit:
        return "default"
    share = value / limit
    return "red" if share >= 1 else "yellow" if share >= 0.9 else "green"


def _bar(value: float | None, limit: float | None) -> str:
    if value is None or not limit:
        return ""
    filled = min(_BAR_WIDTH, max(0, round(_BAR_WIDTH * value / limit)))
    return "█" * filled + "░" * (_BAR_WIDTH - filled)


def _of(value: float | None, limit: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value:.0f} {unit}" if limit is None else f"{value:.0f} of {limit:.0f} {unit}"


def _core(reading: CardReading) -> str:
    parts = []
    if reading.voltage_v is not None:
        parts.append(f"{reading.voltage_v:.2f} V")
    if reading.current_a is not None:
        parts.append(f"{reading.current_a:.0f} A")
    return ", ".join(parts) or "-"


def _link(reading: CardReading) -> str:
    if reading.pcie_gen is None:
        return "-"
    return f"PCIe Gen{reading.pcie_gen} x{reading.pcie_width or '?'}"


def _memory(reading: CardReading) -> str:
    parts = []
    if reading.dram_bytes:
        parts.append(f"{reading.dram_bytes >> 30} GiB (use is not published)")
    if reading.dram_trained is not None:
        parts.append("trained" if reading.dram_trained else "TRAINING FAILED")
    if reading.dram_temperature_c is not None:
        parts.append(f"{reading.dram_temperature_c:.0f} °C")
    return ", ".join(parts) or "-"
