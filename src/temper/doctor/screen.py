"""The doctor's screens as lines of text; no table library, so that the command starts at once."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from temper.doctor.finding import Examination, Finding
from temper.doctor.registry import TOPICS
from temper.machine.machine import printable
from temper.units import piped_width

if TYPE_CHECKING:
    from temper.doctor.diagnosis import Diagnosis
    from temper.doctor.explain import Explained

MARKS = {"ok": "ok", "manual": "hand", "note": "note", "warning": "WARN", "problem": "FAIL"}
COLOURS = {"ok": "green", "manual": "cyan", "note": "blue", "warning": "yellow", "problem": "red"}
_HEADINGS = {"pages": "host memory for the card", "by hand": "check by hand"}


def width() -> int:
    """Columns of the terminal, or of what a pipe is said to have."""
    return max(40, shutil.get_terminal_size().columns if sys.stdout.isatty() else piped_width())


def emit(lines: Iterable[str]) -> None:
    """Print; colours are dropped for pipes and when NO_COLOR is set."""
    plain = bool(os.environ.get("NO_COLOR"))
    for line in lines:
        click.echo(click.unstyle(line) if plain else line)


def report_lines(report: Examination, columns: int, *, verbose: bool = False) -> Iterator[str]:
    """Findings by topic; of a note what is expected, all details of it only when ``verbose``."""
    cards = ", ".join(report.cards) or "no card"
    yield from _wrapped(
        _bold("temper doctor"), "temper doctor", f"{report.machine}: {cards}", columns
    )
    for topic in TOPICS:
        findings = [finding for finding in report.findings if finding.topic == topic]
        if not findings:
            continue
        yield ""
        yield _bold(_HEADINGS.get(topic, topic))
        for finding in findings:
            yield from _finding_lines(finding, len(report.cards) > 1, verbose, columns)
    yield ""
    yield from _summary(report, columns, verbose)


def _finding_lines(finding: Finding, several: bool, verbose: bool, columns: int) -> Iterator[str]:
    mark = f"  {MARKS[finding.level]:<4}"
    colour = COLOURS[finding.level]
    name = f" {finding.check:<14}"
    shown = finding.seen
    if several and finding.card and finding.card not in shown:
        shown = f"{finding.card}: {shown}"
    styled = click.style(mark, fg=colour) + click.style(name, dim=True)
    yield from _wrapped(styled, mark + name, shown, columns)
    for label, detail in _details(finding, verbose):
        plain = f"{'':8}{label:<9}"
        yield from _wrapped(click.style(plain, dim=True), plain, detail, columns)


def _details(finding: Finding, verbose: bool) -> Iterator[tuple[str, str]]:
    grave = finding.level in ("warning", "problem")
    absent = finding.check == "card" and finding.level == "note"
    if not (grave or verbose or absent):
        if finding.level == "note" and finding.expected:
            yield "expected", finding.expected
        return
    details = [("expected", finding.expected), ("why", finding.why), ("fix", finding.fix)]
    if verbose:
        details.append(("source", finding.source))
    yield from ((label, text) for label, text in details if text)


def _summary(report: Examination, columns: int, verbose: bool) -> Iterator[str]:
    names = (
        ("problem", "problem"),
        ("warning", "warning"),
        ("note", "note"),
        ("manual", "to check by hand"),
        ("ok", "ok"),
    )
    parts = []
    for level, name in names:
        count = report.count(level)
        if count:
            plural = "s" if count > 1 and name in ("problem", "warning", "note") else ""
            parts.append(f"{count} {name}{plural}")
    if report.count("problem"):
        head, colour = "Not ready:", "red"
    elif not report.cards:
        head, colour = "Ready for the virtual chip:", "green"
    elif report.count("warning"):
        head, colour = "Usable, not at its best:", "yellow"
    else:
        head, colour = "Ready:", "green"
    more = "" if verbose else " Reasons and sources of all: temper doctor -v"
    styled = click.style(head, fg=colour, bold=True)
    yield from _wrapped(styled, head, ", ".join(parts) + "." + more, columns, indent=0)


def explanation_lines(found: list[Explained], origin: str, columns: int) -> Iterator[str]:
    """What a message means, its arithmetic, three ways out."""
    if not found:
        yield click.style("This message is not in the table.", fg="yellow", bold=True)
        if origin:
            yield f"It comes from {origin}."
        yield from _wrapped(
            "", "", "Give the whole log (temper doctor --error - < log), look for TT_FATAL in it; "
            "'temper doctor' checks the machine.", columns,
        )  # fmt: skip
    for number, item in enumerate(found):
        if number:
            yield ""
        yield _bold(item.title)
        yield from _labelled("means", item.means, columns)
        for line in item.arithmetic:
            yield from _labelled("numbers", line, columns)
        for count, way in enumerate(item.ways, 1):
            yield from _labelled(f"way {count}", way, columns)
        yield from _labelled("from", origin or item.source, columns)


def diagnosis_lines(result: Diagnosis, columns: int) -> Iterator[str]:
    """The steps walked, then causes in order and the next step."""
    yield f"{_bold(result.symptom)}, judged for {result.chip}"
    for step in result.steps:
        mark, colour = ("?", "yellow") if step.weight else ("-", "green")
        yield from _wrapped(click.style(mark, fg=colour), mark, step.question, columns)
        yield from _labelled(step.basis, step.answer, columns)
    yield ""
    if not result.causes:
        yield click.style("No cause found on this machine.", fg="green", bold=True)
        yield from _labelled("next", result.otherwise, columns)
        return
    yield _bold("Causes, the most likely first")
    for number, step in enumerate(result.causes, 1):
        yield from _labelled(f"{number}.", step.cause, columns)
        yield from _labelled("next", step.next_step, columns)


def _labelled(label: str, text: str, columns: int) -> Iterator[str]:
    plain = f"  {label:<10}"
    if text:
        yield from _wrapped(click.style(plain, dim=True), plain, text, columns)


def _wrapped(
    styled: str, plain: str, text: str, columns: int, indent: int | None = None
) -> Iterator[str]:
    """``text`` after a label, its further lines indented to where it began."""
    begin = len(plain) + 1 if plain else 0
    further = " " * (begin if indent is None else indent)
    body = " " * begin + printable(text)
    lines = textwrap.wrap(body, columns, subsequent_indent=further, break_on_hyphens=False) or [""]
    yield styled + (" " if plain else "") + lines[0][begin:]
    yield from lines[1:]


def _bold(text: str) -> str:
    return click.style(text, bold=True)
