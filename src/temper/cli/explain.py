"""``temper explain``: climb the ladder of settings and say what each rung does."""

from __future__ import annotations

from pathlib import Path

import click

from temper.cli.output import console, emit_json, json_option, table
from temper.cli.values import Picture, Whole
from temper.errors import UsageError

_WIDE = 118  # columns that the whole table needs


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
@click.option("--chip", default="n150", show_default=True, help="Board to explain for.")
@click.option("--batch", type=Whole(1), help="Batch of the batch rung (default: best).")
@click.option("--accuracy/--no-accuracy", default=True, help="Run each rung for its accuracy.")
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
    picture: Path | None,
    as_json: bool,
) -> None:
    """Explain MODEL (file.py:callable) rung by rung: float32 level 0 up to block formats."""
    if llm is not None:
        from temper.cli.language import explain_language

        explain_language(llm, {"chip": chip}, users, context, as_json)
        return
    if not model:
        raise UsageError("temper explain needs a model", try_=["model.py:make", "--llm FOLDER"])
    from temper import chips
    from temper.files import check_writable
    from temper.tuning.ladder import explain

    board = chips.get(chip)
    if picture:
        check_writable(picture.parent)
    errors = console(stderr=True)
    with errors.status("loading") as status:
        rungs = explain(
            model,
            board.name,
            batch=batch,
            accuracy=accuracy,
            progress=lambda text: status.update(f"compiling: {text}"),
        )
    if picture:
        from temper.tuning.pictures import waterfall

        waterfall(rungs, f"{model} on {board.name}", picture)
    if as_json:
        emit_json({"model": model, "chip": board.name, "clock": "modelled", "rungs": rungs})
        return
    rows = []
    for rung in rungs:
        rows.append(
            [
                rung.name,
                f"{rung.samples_per_s:,.0f}",
                f"{rung.low_samples_per_s:,.0f} to {rung.high_samples_per_s:,.0f}",
                f"×{rung.gain:.2f}",
                f"{rung.moving_share:.0%}",
                "-" if rung.pcc is None else f"{rung.pcc:.5f}",
                rung.did,
                rung.next_obstacle,
            ]
        )
    out = console()
    columns = [
        "rung",
        "samples/s",
        "band",
        "gain",
        "moving",
        "PCC",
        "what it did",
        "now limited by",
    ]
    narrow = out.width < _WIDE
    if narrow:  # what would be folded to a few letters a line stands below instead
        columns, rows = columns[:6], [row[:6] for row in rows]
    out.print(table(f"{model} on a virtual {board.name}", columns, rows, right=columns[1:6]))
    for rung in rungs if narrow else ():
        out.print(f"{rung.name}: {rung.did}; now limited by {rung.next_obstacle}")
    best = max(rungs, key=lambda r: r.samples_per_s)
    over = best.samples_per_s / rungs[0].samples_per_s
    measured = any(rung.pcc is not None for rung in rungs)
    pcc = "measured against float32 in eager torch, sums as on the chip" if measured else "not run"
    out.print(
        f"samples/s: modelled, end to end with transfers; moving: share of the modelled device "
        f"time that only moves data; PCC: {pcc}. "
        f"Best rung: {best.name}, ×{over:.1f} over the first.",
        style="dim",
    )
    if picture:
        out.print(f"waterfall: {picture}")
