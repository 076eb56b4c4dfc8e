"""``temper diff A B``: compare two profiles op by op, with a gate for CI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from temper.cli.output import console, emit_json, json_option, table
from temper.cli.region import region_options
from temper.cli.values import Share, Whole
from temper.units import time_text

if TYPE_CHECKING:
    from temper.report.compare import Comparison
    from temper.run.regions import Region


@click.command(
    epilog="Examples: 'temper diff runs/before runs/after', "
    "'temper diff main.csv branch.csv --gate 5%'."
)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option(
    "--gate",
    "allowed",
    type=Share(),
    help="Exit with 1 if the total got slower by more than this, e.g. 5%.",
)
@click.option("--limit", default=15, show_default=True, type=Whole(1), help="Rows of the table.")
@click.option(
    "--calls",
    type=click.Choice(["warm", "first", "all"]),
    default="warm",
    show_default=True,
    help="Which calls of run folders to compare.",
)
@region_options
@json_option
def command(
    before: Path,
    after: Path,
    allowed: float | None,
    limit: int,
    calls: str,
    region: Region,
    chip: str | None,
    as_json: bool,
) -> None:
    """Compare two run folders or ops CSVs: faster, slower, appeared, vanished.

    Ops are matched by module path, then by order. Times are of one call, a warm one by default,
    where both profiles are run folders; of everything in the file where one is a CSV.
    """
    from temper.report.compare import compare
    from temper.run.opening import open_profile

    first, second = (open_profile(path, region=region, chip=chip or "") for path in (before, after))
    compared = compare(first, second, calls)
    failed = allowed is not None and compared.ratio > allowed
    if as_json:
        emit_json({**compared.as_dict(), "gate": allowed, "failed": failed})
    else:
        _print(compared, limit)
        if allowed is not None:
            verdict = "FAILED" if failed else "passed"
            click.echo(f"gate {verdict}: {compared.ratio:+.1%}, allowed {allowed:+.1%}")
    sys.exit(1 if failed else 0)


def _print(compared: Comparison, limit: int) -> None:

    out = console()
    kind = {"warm": "a warm call", "first": "a first call"}.get(compared.before.chosen, "a call")
    unit = kind if compared.per_call else "in all"
    words = {compared.before.word, compared.after.word}
    out.print(
        f"total {time_text(compared.before_total_ns)} -> {time_text(compared.after_total_ns)} "
        f"{unit} ({compared.ratio:+.1%}), {' against '.join(sorted(words))}",
        markup=False,
        soft_wrap=True,
    )
    if not compared.per_call and compared.before.ops != compared.after.ops:
        out.print(
            f"note: {compared.before.ops:,} ops against {compared.after.ops:,}: if one run was "
            "longer, compare run folders, which know their calls"
        )
    if compared.before.chip != compared.after.chip:
        out.print(f"note: {compared.before.chip} against {compared.after.chip}", markup=False)
    changed = [change for change in compared.changes if change.kind != "same"]
    shown = changed[:limit]
    rows = [
        (
            change.kind, change.name, time_text(change.before_ns), time_text(change.after_ns),
            f"{change.delta_ns / 1e3:+.1f} µs",
            f"{change.delta_ns / change.before_ns:+.0%}" if change.before_ns else "",
            change.where.rsplit("/", 1)[-1],
        )
        for change in shown
    ]  # fmt: skip
    columns = ("", "op", "before", "after", "change", "", "where")
    if rows:
        out.print(table("", columns, rows, right=("before", "after", "change")))
        explained = compared.explained(shown)
        same = len(compared.changes) - len(changed)
        if 0 <= explained <= 1:
            part = f"explain {explained:.0%} of the total's change"
        else:
            # Ops and what lies between them went different ways: a share would say nothing.
            moved = sum(change.delta_ns for change in shown)
            part = f"took {moved / 1e3:+.1f} µs of {compared.delta_ns / 1e3:+.1f} µs"
        out.print(f"these {len(rows)} of {len(changed)} changed ops {part}; {same} are the same")
    else:
        out.print(f"all {len(compared.changes)} ops are the same", markup=False)
    out.print(_parts(compared))


def _parts(compared: Comparison) -> str:
    """Where else the total changed: gaps, host, link, waiting."""

    scale_a = 1 / compared.before.calls if compared.per_call else 1
    scale_b = 1 / compared.after.calls if compared.per_call else 1
    parts = []
    for name in ("device", "gap", "host_ops", "transfer", "other"):
        one = getattr(compared.before.split, name) * scale_a
        two = getattr(compared.after.split, name) * scale_b
        if one or two:
            parts.append(f"{name.replace('_', ' ')} {time_text(one)} -> {time_text(two)}")
    return "; ".join(parts)
