"""``temper advise``: one page for a decision, over boards and settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from temper.cli.output import console, emit_json, json_option, labelled, table
from temper.cli.progress import progress, quiet_option
from temper.cli.values import Number, Whole, kept_chip
from temper.files import check_writable

if TYPE_CHECKING:
    from temper.tuning.advise import Advice


@click.command(
    epilog="Examples: 'temper advise model.py:make', "
    "'temper advise model.py:make --chip n150 --chip p150 --min-pcc 0.999 --html advice.html'"
)
@click.argument("model")
@click.option(
    "--chip",
    "boards",
    multiple=True,
    help="A board to ask about (default: kept, or n150 and p150).",
)
@click.option("--batch", type=Whole(1), help="Batch of every rung (default: 1, then the best).")
@click.option(
    "--min-pcc",
    default=0.99,
    show_default=True,
    type=Number(-1, 1),
    help="Least correlation to float32.",
)
@click.option(
    "--minutes",
    default=10.0,
    show_default=True,
    type=Number(above=0),
    help="Leave out what is not begun by then.",
)
@click.option("--html", "page", type=click.Path(path_type=Path), help="Write a page with pictures.")
@quiet_option
@json_option
def command(
    model: str,
    boards: tuple[str, ...],
    batch: int | None,
    min_pcc: float,
    minutes: float,
    page: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """What to do with MODEL (file.py:callable): settings, boards, limits, and what comes next."""
    from temper.options import unless_set
    from temper.tuning.advise import BOARDS, advise
    from temper.tuning.advise_page import write

    if page:
        check_writable(page.parent)
    with progress("advise", quiet) as said:
        advice = advise(
            model,
            boards or unless_set({"chip": BOARDS}).get("chip") or [kept_chip()],
            batch=batch,
            min_pcc=min_pcc,
            seconds=minutes * 60,
            label=model,
            progress=said.now,
            on_rung=lambda chip, rung: said.line(
                f"{chip}: {rung.name}: {rung.samples_per_s:,.0f} samples/s modelled, {rung.verdict}"
            ),
        )
    if page:
        write(advice, page)
    if as_json:
        emit_json(advice)
    else:
        _show(advice, model, page)
    if advice.interrupted:
        sys.exit(130)


def _show(advice: Advice, model: str, page: Path | None) -> None:
    from temper.tuning.advise_page import COLUMNS, memory_text, rows, settings_text

    out = console()
    out.print(table(f"advice for {model}", COLUMNS, rows(advice),
                    right=["batch", "samples/s", "call", "accuracy", "over level 0"],
                    drop=["now limited by", "band", "call"]))  # fmt: skip
    for board in advice.boards:
        out.print(f"{board.chip}: {settings_text(board)}")
        gains = [r for r in board.ladder.rungs[1:] if r.kept]
        if gains:
            out.print(labelled("gains", ", ".join(f"{r.name} ×{r.gain:.2f}" for r in gains)))
        lost = [r for r in board.ladder.rungs if r.verdict in ("slower", "below the floor")]
        if lost:
            out.print(labelled("not", ", ".join(f"{r.name} ({r.verdict})" for r in lost)))
        limits = ", ".join(f"{name} {share:.0%}" for name, share in list(board.limits.items())[:3])
        roof = board.roofline
        reached = f"{roof.tflops:.3g} of {roof.roof_tflops:.3g} TFLOP/s that its roofline allows"
        out.print(labelled("limits", f"{limits}; {reached}"))
        out.print(labelled("memory", memory_text(board)))
        for text in (*board.next_steps, *(f"not tried: {t}" for t in board.ladder.skipped)):
            out.print(labelled("next", text))
    for name, text in advice.refused.items():
        out.print(f"{name}: {text}")
    out.print(advice.choice)
    out.print(
        f"times and bytes: modelled, bands of 80%; accuracy: measured against float32 (floor: "
        f"{advice.floor or 'none'}); {advice.seconds:.0f} s on this host",
        style="dim",
    )
    if page:
        out.print(f"page: {page}")
