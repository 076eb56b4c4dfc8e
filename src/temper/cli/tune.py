"""``temper tune``: search settings under an accuracy floor, or sweep the batch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from temper import chips
from temper.cli.language import tune_language_command
from temper.cli.model import option_pairs
from temper.cli.output import console, emit_json, json_option, table
from temper.cli.progress import terminable
from temper.cli.values import Number, Picture, Whole, kept_chip, named_values
from temper.errors import UsageError
from temper.files import check_writable
from temper.options import unless_set


@click.command(
    epilog="Examples: 'temper tune model.py:make', "
    "'temper tune model.py:make --min-pcc 0.999 --objective latency', "
    "'temper tune model.py:make --metric score.py:accuracy --min-metric 0.95', "
    "'temper tune --batch model.py:make --picture curve.png', "
    "'temper tune --llm ./smollm-135m --max-perplexity 1.02 --min-top1 0.95'"
)
@click.argument("model", required=False)
@click.option("--llm", metavar="MODEL", help="The decode step of a language model instead.")
@click.option("--users", default=32, show_default=True, type=Whole(1), help="With --llm.")
@click.option("--context", default=1024, show_default=True, type=Whole(1), help="With --llm.")
@click.option(
    "--max-perplexity",
    default=1.05,
    show_default=True,
    type=Number(1),
    help="Most perplexity over that of float32, with --llm.",
)
@click.option("--chip", default=kept_chip, show_default="n150", help="Board to tune for.")
@click.option("--batch", "sweep", is_flag=True, help="Sweep the batch only.")
@click.option(
    "--dtype",
    default="bfloat16",
    show_default=True,
    type=click.Choice(["bfloat16", "float32", "keep"]),
    help="Cast the model first.",
)
@option_pairs("A compile option to keep fixed.")
@click.option(
    "--objective",
    default="throughput",
    show_default=True,
    type=click.Choice(["throughput", "latency"]),
    help="What to make best: samples per second, or the time of a call at batch 1.",
)
@click.option(
    "--min-pcc",
    default=0.99,
    show_default=True,
    type=Number(-1, 1),
    help="Least correlation to float32.",
)
@click.option("--min-top1", type=Number(0, 1), help="Least agreement of the largest output.")
@click.option("--max-rms", type=Number(0), help="Most relative RMS error.")
@click.option("--metric", metavar="FILE:CALLABLE", help="Your own: f(output, reference) -> number.")
@click.option("--min-metric", type=Number(), help="Least value of your metric.")
@click.option("--batches", metavar="N,N,...", help="Batches to try (default: the curve's best).")
@click.option("--samples", type=Whole(1), help="Batch of the accuracy runs.")
@click.option(
    "--trials", default=200, show_default=True, type=Whole(1), help="Settings to stop after."
)
@click.option(
    "--minutes", default=10.0, show_default=True, type=Number(above=0), help="Time to stop after."
)
@click.option(
    "--study",
    default="tune.db",
    show_default=True,
    help="SQLite file or database URL that keeps the trials.",
)
@click.option(
    "--output",
    default=".",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for tuned.toml and overrides.json.",
)
@click.option(
    "--replay", type=Whole(0), metavar="TRIAL", help="Compile and measure a stored trial."
)
@click.option("--picture", type=Picture(), help="PNG, SVG or PDF of the curve or front.")
@click.option("--html", "page", type=click.Path(path_type=Path), help="Page with the curve.")
@click.option(
    "--limit", default=4096, show_default=True, type=Whole(1), help="Largest batch of a sweep."
)
@click.option("--to-the-end", is_flag=True, help="Sweep over the plateau until memory ends.")
@click.option(
    "--workload",
    type=click.Choice(["stateless", "stateful"]),
    help="Compare a sweep with the guide's advice for this kind.",
)
@json_option
def command(
    model: str | None,
    llm: str | None,
    users: int,
    context: int,
    max_perplexity: float,
    chip: str,
    sweep: bool,
    dtype: str,
    pairs: tuple[str, ...],
    picture: Path | None,
    page: Path | None,
    limit: int,
    to_the_end: bool,
    workload: str | None,
    as_json: bool,
    **rest: Any,
) -> None:
    """Find the fastest setting of MODEL (file.py:callable) that stays accurate."""

    board = chips.get(chip).name
    for path in (picture, page):
        if path is not None:
            check_writable(path.parent)
    options: dict[str, Any] = named_values("-O", pairs)
    if llm is not None:
        from temper.tuning.language_accuracy import LanguageFloor

        floor = LanguageFloor(max_perplexity, rest["min_top1"] or 0.0, rest["min_pcc"])
        tune_language_command(llm, {**options, "chip": board}, users, context, floor, as_json)
        return
    if not model:
        raise UsageError("temper tune needs a model", try_=["model.py:make", "--llm FOLDER"])
    if sweep:
        preferred = unless_set({"optimization_level": 2, "enable_trace": True})
        whole = {**preferred, **options, "chip": board}
        _sweep(model, whole, dtype, limit, to_the_end, workload or "", picture, page, as_json)
        return
    _tune(model, board, dtype, options, picture, as_json, **rest)


def _sweep(
    model: str,
    options: dict[str, Any],
    dtype: str,
    limit: int,
    to_the_end: bool,
    workload: str,
    picture: Path | None,
    page: Path | None,
    as_json: bool,
) -> None:
    from temper.tuning.batch import tune_batch
    from temper.tuning.batch_views import COLUMNS, rows, write_html, write_picture

    with console(stderr=True).status("batch 1") as status:
        curve = tune_batch(
            model, options, dtype=dtype, limit=limit, to_the_end=to_the_end, workload=workload,
            progress=status.update,
        )  # fmt: skip
    title = f"{model} on a virtual {curve.chip}"
    if picture:
        write_picture(curve, title, picture)
    if page:
        write_html(curve, title, page)
    if as_json:
        emit_json({"model": model, "clock": "modelled", **curve.as_dict()})
        return
    out = console()
    heads = [*COLUMNS, "throughput"]
    out.print(table(title, heads, rows(curve), right=COLUMNS,
                    drop=["DRAM, MB", "in SRAM", "SRAM per core, B"]))  # fmt: skip
    near = curve.quickest_near_best
    also = f"; batch {near} is within 2% and answers sooner" if near < curve.best else ""
    out.print(f"best batch {curve.best}{also}")
    for text in (curve.ended, curve.reason, curve.advice):
        if text:
            out.print(text, markup=False)
    out.print("times and bytes: modelled; nothing was run", style="dim")
    for path in (picture, page):
        if path:
            out.print(f"written: {path}")


def _tune(
    model: str,
    chip: str,
    dtype: str,
    options: dict[str, Any],
    picture: Path | None,
    as_json: bool,
    *,
    objective: str,
    min_pcc: float,
    min_top1: float | None,
    max_rms: float | None,
    metric: str | None,
    min_metric: float | None,
    batches: str | None,
    samples: int | None,
    trials: int,
    minutes: float,
    study: str,
    output: Path,
    replay: int | None,
) -> None:
    from temper.frontdoor.loader import find
    from temper.tuning.accuracy import floors
    from temper.tuning.tune import replay_trial, tune
    from temper.tuning.tune_output import draw_front, write
    from temper.tuning.tune_text import show, show_replay

    check_writable(output)
    wanted = floors(min_pcc, min_top1, max_rms, find(metric) if metric else None, min_metric)
    settings: dict[str, Any] = {
        "floors": wanted, "objective": objective, "batches": _numbers(batches), "dtype": dtype,
        "samples": samples, "options": options, "study": study, "label": model,
    }  # fmt: skip
    with terminable(), console(stderr=True).status("loading") as status:
        if replay is not None:
            trial, figures = replay_trial(model, chip, replay, progress=status.update, **settings)
            if as_json:
                emit_json({"trial": trial, "now": figures})
            else:
                show_replay(console(), trial, figures)
            return
        tuned = tune(
            model, chip, trials=trials, seconds=minutes * 60, progress=status.update, **settings
        )
    toml, overrides = write(tuned, output)
    if picture:
        draw_front(tuned, picture)
    if as_json:
        emit_json({**tuned.as_dict(), "files": [str(toml), str(overrides)]})
    else:
        show(console(), tuned, toml, overrides, study)
        if picture:
            console().print(f"front: {picture}")
    if tuned.found.interrupted:
        sys.exit(130)


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = [0]
    if found[0] < 1:
        raise UsageError(f"{text!r} are no batches", try_=["--batches 1,8,32"])
    return found
