"""``temper monitor``: temperature, power, clocks and link of the cards, live."""

from __future__ import annotations

import csv
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from temper.cli.output import emit_json, json_option
from temper.cli.values import Number, Whole
from temper.errors import TemperError, UsageError
from temper.machine import telemetry
from temper.machine.archive import open_machine
from temper.machine.cards import find

if TYPE_CHECKING:
    from temper.machine.cards import Card
    from temper.machine.machine import Machine

_MIN_INTERVAL_S = 0.1


@click.command(
    epilog="""\b
Examples:
  temper monitor                                full screen, until q or Ctrl-C
  temper monitor --once                         one reading as text
  temper monitor --json                         one reading as JSON
  temper monitor --csv log.csv --interval 2     append a row a card every 2 s
  temper monitor --csv log.csv --count 30       stop after 30 readings
"""
)
@click.option("--once", is_flag=True, help="One reading as text.")
@click.option("--csv", "csv_file", metavar="FILE", help="Append readings to a CSV file.")
@click.option(
    "--interval",
    "interval_s",
    type=Number(_MIN_INTERVAL_S),
    default=1.0,
    show_default=True,
    help="Seconds between readings.",
)
@click.option("--count", type=Whole(1), help="Stop after so many readings.")
@click.option("--root", metavar="DIR|TAR", help="Read a captured machine instead.")
@json_option
def command(
    once: bool,
    csv_file: str | None,
    interval_s: float,
    count: int | None,
    root: str | None,
    as_json: bool,
) -> None:
    """Watch temperature, power, clocks, link and memory of each card.

    All values are measured by the card and read from sysfs, or from tt-smi where sysfs has none.
    Exit code 1 when a card is throttled or there is no card.
    """
    if sum((once, as_json, csv_file is not None)) > 1:
        raise UsageError("--once, --json and --csv exclude each other")

    machine = open_machine(root)
    cards = find(machine)
    readings = telemetry.read(machine, cards)
    if as_json:
        emit_json([reading.as_dict() for reading in readings])
        if readings:
            sys.exit(int(any(reading.throttled for reading in readings)))
    if not readings:
        raise TemperError(
            "no card to watch",
            needs="a Tenstorrent card with its driver (temper doctor says what is missing)",
            try_=["temper monitor --root capture.tar"],
        )
    if csv_file is not None:
        _write_csv(machine, cards, Path(csv_file), interval_s, count)
    elif once or not sys.stdout.isatty():
        from temper.doctor.monitor_view import plain_lines

        for line in plain_lines(readings):
            click.echo(line)
        sys.exit(int(any(reading.throttled for reading in readings)))
    else:
        _full_screen(machine, cards, interval_s, count)


def _write_csv(
    machine: Machine, cards: list[Card], path: Path, interval_s: float, count: int | None
) -> None:
    """Rows are flushed one by one, so that an interrupted log is complete up to its end."""

    try:
        fresh = not path.exists() or path.stat().st_size == 0
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if fresh:
                writer.writerow(telemetry.CSV_COLUMNS)
            done = 0
            while count is None or done < count:
                if done:
                    time.sleep(interval_s)
                for reading in telemetry.read(machine, cards):
                    writer.writerow(telemetry.csv_row(reading))
                file.flush()
                done += 1
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    except KeyboardInterrupt:
        pass
    click.echo(f"{path}: {done} readings of {len(cards)} card(s)", err=True)


def _full_screen(machine: Machine, cards: list[Card], interval_s: float, count: int | None) -> None:
    from rich.console import Console
    from rich.live import Live

    from temper.doctor.monitor_view import History, screen

    console = Console(no_color=bool(os.environ.get("NO_COLOR")), highlight=False)
    history = History()
    done = 0
    with _Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while count is None or done < count:
            readings = telemetry.read(machine, cards)
            history.add(readings)
            live.update(screen(readings, history, interval_s, console.width), refresh=True)
            done += 1
            if keys.quit_within(interval_s):
                break


class _Keys:
    """Single key presses without Enter; the terminal is put back on leaving."""

    def __enter__(self) -> _Keys:
        self._saved: list[Any] | None = None
        if sys.stdin.isatty():
            import termios
            import tty

            self._saved = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(self, *_: object) -> None:
        if self._saved is not None:
            import termios

            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._saved)

    def quit_within(self, seconds: float) -> bool:
        """Wait, and say whether q was pressed meanwhile."""
        if self._saved is None:
            time.sleep(seconds)
            return False
        import select

        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return bool(ready) and sys.stdin.read(1) in ("q", "Q", "\x1b")
