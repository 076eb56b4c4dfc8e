"""``temper explain``: climb the ladder of settings and say what each rung does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from temper import chips
from temper.cli.language import explain_language
from temper.cli.model import target_option
from temper.cli.output import console, emit_json, json_option, table
from temper.cli.progress import progress, quiet_option
from temper.cli.values import Number, Picture, Whole, kept_chip
from temper.errors import UsageError
from temper.files import check_writable

if TYPE_CHECKING:
    from rich.console import Console

    from temper.tuning.ladder import Ladder
    from temper.tuning.rung import Rung

_WIDE = 132  # columns that the whole table needs


@click.command(
    epilog="Examples: 'temper explain model.py:make', "
    "'temper explain model.py:make --chip p150 --picture ladder.png', "
    "'temper explain package.module:make --batch 16 --json', "
    "'temper explain --llm ./llama-3.2-1b --users 1'"
)
@click.argument("model", required=False)
@click.option("--llm", metavar="MODEL", help="The decode step of a language model instead.")
@click.option("--users", default=32, show_default=True, type=Whole(1), help="With --llm.")
@click.option("--context", default=1024, show_default=True, type=Whole(1), help="With --llm.")
@click.option("--chip", default=kept_chip, show_default="n150", help="Board to explain for.")
@target_option
@click.option("--batch", type=Whole(1), help="Batch of every rung (default: 1, then the best).")
@click.option("--accuracy/--no-accuracy", default=True, help="Run each rung for its accuracy.")
@click.option(
    "--min-pcc",
    default=0.99,
    show_default=True,
    type=Number(-1, 1),
    help="Least correlation to float32 of the best rung.",
)
@click.option(
    "--minutes",
    default=10.0,
    show_default=True,
    type=Number(above=0),
    help="Leave out the rungs that are not begun by then.",
)
@quiet_option
@click.option("--picture", type=Picture(), help="Write the waterfall as PNG, SVG or PDF.")
@json_option
def command(
    model: str | None,
    llm: str | None,
    users: int,
    context: int,
    chip: str,
    batch: int | None,
    accuracy: bool,
    min_pcc: float,
    minutes: float,
    quiet: bool,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Explain MODEL (file.py:callable) rung by rung: float32 level 0 up to block formats."""
    if llm is not None:
        explain_language(llm, {"chip": chip}, users, context, accuracy, as_json)
        return
    if not model:
        raise UsageError("temper explain needs a model", try_=["model.py:make", "--llm FOLDER"])
    from temper.tuning.ladder import explain

    board = chips.get(chip)
    if picture:
        check_writable(picture.parent)
    with progress("explain", quiet) as said:
        ladder = explain(
            model,
            board.name,
            batch=batch,
            accuracy=accuracy,
            min_pcc=min_pcc,
            seconds=minutes * 60,
            progress=said.now,
            on_rung=lambda rung: said.line(rung_line(rung)),
        )
    if picture and ladder.rungs:
        from temper.tuning.pictures import waterfall

        waterfall(ladder.rungs, f"{model} on {board.name}", picture)
    if as_json:
        emit_json({"model": model, **ladder.as_dict()})
    else:
        out = console()
        show_ladder(out, ladder, f"{model} on a virtual {board.name}")
        if picture and ladder.rungs:
            out.print(f"waterfall: {picture}")
    if ladder.interrupted:
        sys.exit(130)


def rung_line(rung: Rung) -> str:
    """One rung as it is told when it is there."""
    return (
        f"{rung.name}: {rung.samples_per_s:,.0f} samples/s modelled, ×{rung.gain:.2f}, "
        f"{rung.verdict}; accuracy {rung.accuracy_text}"
    )


def show_ladder(out: Console, ladder: Ladder, title: str) -> None:
    """The ladder as a table, the best rung, and what to know beside it."""
    rows = [
        [
            rung.name,
            rung.batch,
            f"{rung.samples_per_s:,.0f}",
            f"×{rung.gain:.2f}",
            rung.verdict,
            rung.accuracy_text,
            f"{rung.low_samples_per_s:,.0f} to {rung.high_samples_per_s:,.0f}",
            f"{rung.moving_share:.0%}",
            rung.did,
            rung.next_obstacle,
        ]
        for rung in ladder.rungs
    ]
    columns = ["rung", "batch", "samples/s", "gain", "verdict", "accuracy", "band", "moving",
               "what it did", "now limited by"]  # fmt: skip
    narrow = out.width < _WIDE
    if narrow:  # what would be folded to a few letters a line stands below instead
        columns, rows = columns[:6], [row[:6] for row in rows]
    out.print(table(title, columns, rows, right=["batch", "samples/s", "gain", "accuracy", "band",
                                                 "moving"]))  # fmt: skip
    for rung in ladder.rungs if narrow else ():
        out.print(f"{rung.name}: {rung.did}; now limited by {rung.next_obstacle}")
    best = ladder.best
    if best is not None:
        over = best.samples_per_s / ladder.rungs[0].samples_per_s
        keeps = f" that keeps {ladder.floor}" if ladder.floor else ""
        out.print(f"best rung: {best.name}, the fastest{keeps}; ×{over:.1f} over the first, "
                  f"now limited by {best.next_obstacle}")  # fmt: skip
    for text in (*ladder.notes, *(f"not tried: {text}" for text in ladder.skipped)):
        out.print(text)
    measured = any(rung.accuracy is not None for rung in ladder.rungs)
    accuracy = "PCC to float32 in eager torch, measured, sums as on the chip"
    out.print(
        "samples/s: modelled, end to end with transfers; gain: over the last rung that was kept, "
        "no difference below 5% where the band of the ratio holds 1; moving: share of the device "
        f"time that only moves data; accuracy: {accuracy if measured else 'not run'}",
        style="dim",
    )
