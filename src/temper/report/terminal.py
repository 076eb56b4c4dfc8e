"""The report for the terminal: totals, the few ops that matter, memory, advice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from temper.report.judge import JUDGED_COLUMNS, judged_cells
from temper.report.summary import (
    Group,
    Summary,
    calls_text,
    group_by,
    short_code,
    summarise,
    top_ops,
)
from temper.run.opening import Profile
from temper.units import bytes_text, hanging, rate_text, time_text

if TYPE_CHECKING:
    from rich.console import Console

    from temper.report.advice import Advice
    from temper.report.judge import Judged

_INDENT = 13  # where the text of the first lines begins


def print_report(
    console: Console,
    profile: Profile,
    advice: Sequence[Advice],
    *,
    table: Callable[..., Any],
    by: str = "",
    limit: int = 10,
    judged: Sequence[Judged] = (),
) -> None:
    """Print everything; ``table`` makes one of a title, columns and rows."""
    summary = summarise(profile)

    def groups(title: str, name: str, found: Sequence[Group]) -> None:
        if not found:
            return
        columns = (name, *_COLUMNS)
        made = table(
            f"{title} ({summary.word})", columns, map(_cells, found), right=_NUMBERS, drop=_LESSER
        )
        console.print(made)

    def say(line: str, indent: int) -> None:
        console.print(hanging(line, console.width, indent), markup=False, soft_wrap=True)

    for line in headline(summary):
        say(line, _INDENT)
    device = profile.table.select(profile.table.is_device)
    if by:
        groups(f"By {by}", by, group_by(device, by)[:limit])
    else:
        groups("Ops that matter", "op", top_ops(profile.table, limit))
        groups("By kind of op", "op", group_by(device, "op")[:limit])
    if judged:
        console.print(
            table(
                "Measured beside the model, most time lost first",
                JUDGED_COLUMNS,
                judged_cells(judged[:limit]),
                right=("runs", "measured", "modelled", "band", "lost", "FLOPs", "DRAM", "cores"),
                drop=("formats", "band", "runs", "bound", "cores"),
            )
        )
    for line in _memory(summary):
        say(line, 2)
    _print_advice(console, advice, summary)
    for note in summary.notes:
        say(f"note: {note}", 6)


def headline(summary: Summary) -> list[str]:
    """The first lines of a report: where the time went."""
    split = summary.split
    band = ""
    if summary.modelled and summary.low_ns != summary.high_ns:
        band = f" ({time_text(summary.low_ns)} to {time_text(summary.high_ns)})"
    lines = [
        f"{summary.name}",
        f"  chip       {summary.chip}, device times {summary.word}",
        f"  device     {time_text(split.device)}{band} in {_ops(summary.ops)}"
        + (f" of {calls_text(summary)}" if summary.calls else "")
        + (f", {summary.processes} processes" if summary.processes > 1 else ""),
        f"  gaps       {time_text(split.gap)} between ops"
        + (f"; {summary.traced_calls} calls replayed a trace" if summary.traced_calls else ""),
    ]
    if summary.host_ops:
        lines.append(f"  host ops   {time_text(split.host_ops)} in {_ops(summary.host_ops)}")
    if split.transfer:
        size = f", {bytes_text(summary.transfer_bytes)}" if summary.transfer_bytes else ""
        lines.append(f"  transfer   {time_text(split.transfer)} over the link{size}")
    if split.other:
        lines.append(f"  waiting    {time_text(split.other)} for host dispatch and synchronisation")
    if len(lines) > 4:
        each = f"; {_ONE[summary.chosen]} {time_text(summary.call_ns)}" if summary.call_ns else ""
        lines.append(f"  total      {time_text(split.total)} {summary.word}{each}")
    lines.append(
        f"  use        {rate_text(summary.tflops)}, {summary.gbps:.3g} GB/s of DRAM while ops run"
    )
    if summary.bounds:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in summary.bounds.items())
        lines.append(f"  bound by   {shares}")
    if summary.wall_ns:
        lines.append(
            f"  wall       {time_text(summary.wall_ns)} measured on this host"
            + (f" in {calls_text(summary)}" if summary.calls else "")
        )
    return lines + _once(summary)


def _ops(number: int) -> str:
    return f"{number} op" if number == 1 else f"{number} ops"


_ONE = {"warm": "a warm call", "first": "a first call", "all": "a call"}


def _once(summary: Summary) -> list[str]:
    """What the run paid once, by itself: none of it is in the figures above."""
    if not summary.once and not summary.first_call_wall_ns:
        return []
    parts = [
        f"{work.name} {time_text(work.time_ns)}"
        + (f" in {work.ops} ops on the device, {work.basis}" if work.place == "device" else "")
        for work in sorted(summary.once, key=lambda work: -work.time_ns)
    ]
    if summary.first_call_wall_ns:
        parts.insert(0, f"first calls {time_text(summary.first_call_wall_ns)} in all")
    return [f"  once       {', '.join(parts)}; host times measured"]


_NUMBERS = ("share", "total", "runs", "each", "band", "gap", "cores")
_COLUMNS = (*_NUMBERS, "bound", "where")
# What a narrow terminal can do without, first to go first.
_LESSER = ("cores", "gap", "where", "runs", "total", "band")


def _cells(group: Group) -> list[str]:
    runs = max(1, group.count)
    band = ""
    if group.low_ns != group.high_ns:
        band = f"{time_text(group.low_ns / runs)} to {time_text(group.high_ns / runs)}"
    return [
        short_code(group.name) or "(none)", f"{group.share:.1%}", time_text(group.total_ns),
        str(group.count), time_text(group.total_ns / runs), band, time_text(group.gap_ns / runs),
        "" if group.cores != group.cores else f"{group.cores:.0f}", group.bound,
        _short_path(group.where),
    ]  # fmt: skip


def _short_path(where: str) -> str:
    return where.rsplit("/", 1)[-1]


def _memory(summary: Summary) -> list[str]:
    lines = []
    for high in summary.memory:
        if not high.size_bytes:
            continue
        largest = ", ".join(f"{h.module} {bytes_text(h.size_bytes)}" for h in high.holders[:3])
        size = bytes_text(high.size_bytes)
        where = " of one core" if high.pool == "sram" else ""
        lines.append(f"{high.pool.upper()}{where} high water {size} at op {high.op}: {largest}")
    return lines


def _print_advice(console: Console, advice: Sequence[Advice], summary: Summary) -> None:
    if not advice:
        return
    over = f" over {calls_text(summary)}" if summary.calls else ""
    console.print(f"\nAdvice, by gain{over}", markup=False)
    for number, item in enumerate(advice, 1):
        *told, paste = item.lines(number)
        for line in told:
            below = 10 if line.startswith(" ") else 3
            console.print(hanging(line, console.width, below), markup=False, soft_wrap=True)
        console.print(paste, markup=False, soft_wrap=True)  # whole, to be copied
