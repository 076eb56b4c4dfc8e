"""``temper calibrate``: fit the cost model to measured rows, or check it against them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from temper import chips
from temper.cli.output import console, emit_json, json_option, table
from temper.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from temper.cost.evaluate import Evaluation, Score
    from temper.cost.rows import Rejected

_SHOWN = 10  # rejected rows listed one by one


@click.command(
    epilog="Examples: 'temper calibrate --evaluate rows.csv', 'temper calibrate --evaluate "
    "rows.csv --json', 'temper calibrate rows.csv more.csv', 'temper calibrate rows.csv "
    "-o mine.json' and then '-O cost_data=mine.json', 'temper calibrate --from "
    "ops_perf_results.csv --chip n150'."
)
@click.argument("rows_csv", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--from", "profile", type=click.Path(path_type=Path), metavar="CSV|FOLDER",
    help="A device profile of your own card: how far the shipped fit is off on it; with -o, the "
    "shipped constants corrected for it.",
)  # fmt: skip
@click.option("--chip", default="n150", show_default=True, help="The card behind --from.")
@click.option("--evaluate", is_flag=True, help="Only compare predictions with the rows.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the constants to this file."
)
@json_option
def command(
    rows_csv: tuple[Path, ...],
    profile: Path | None,
    chip: str,
    evaluate: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Fit the cost model to ROWS_CSV, or check it with --evaluate.

    \b
    Each ROWS_CSV has one measured kernel a row. Needed columns: arch, op, kernel_ns (median,
    nanoseconds), in0_pad, in0_dtype, in0_mem, out0_pad; used when present: source, board,
    cores, avail_cores, traced, fidelity, in1_*, in2_*, out0_*, mm_cfg and its numbers, win_hw
    and the other convolution columns, eltwise_op, misc, date.

    A fit leaves out whole sources in turn, prints the error on them, and replaces the package's
    constants only when it succeeded.
    """
    if profile is not None:
        _correct(profile, chip, output, as_json)
    elif not rows_csv:
        raise UsageError("temper calibrate needs rows", try_=["ROWS_CSV", "--from CSV"])
    elif evaluate:
        _evaluate(rows_csv, as_json)
    else:
        _fit(rows_csv, output, as_json)


def _correct(profile: Path, chip: str, output: Path | None, as_json: bool) -> None:
    from temper.run import card_rows

    rows, rejected = card_rows.read(profile, chips.get(chip).arch)
    found = card_rows.compare(rows, rejected)
    if output is not None:
        card_rows.store(found, output)
    if as_json:
        emit_json({**found.as_dict(), "stored": str(output) if output else None})
        return
    shown = [
        [family, arch, count, f"{factor:.2f}"]
        for (family, arch), (factor, count) in sorted(found.factors.items())
    ]
    columns = ["family", "arch", "rows", "measured / modelled"]
    out = console()
    out.print(table("This card against the shipped fit", columns, shown, right=columns[2:]))
    out.print(f"{found.rows} rows used, {len(found.rejected)} not")
    _name(found.rejected)
    if output is not None:
        out.print(
            f"corrected constants in {output}; switch them on: -O cost_data={output}, the compile "
            f"option cost_data, or TEMPER_COST_DATA={output}"
        )


def _evaluate(rows_csv: Sequence[Path], as_json: bool) -> None:
    from temper.cost.evaluate import evaluate_rows
    from temper.cost.rows import read_all

    result = evaluate_rows(*read_all(rows_csv))
    if as_json:
        emit_json(result.as_dict())
        return
    _print(result)


def _cells(name: str, score: Score) -> list[object]:
    def text(value: float | None, digits: int = 1) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    inside = None if score.in_band is None else score.in_band * 100
    return [
        name, score.rows, text(score.median_ape), text(score.p90_ape), text(score.bias),
        text(score.spearman, 3), text(inside, 0),
    ]  # fmt: skip


def _print(result: Evaluation) -> None:
    columns = ["family/arch", "rows", "median %", "p90 %", "bias %", "rank corr.", "in band %"]
    ordered = sorted(result.families.items(), key=lambda item: -item[1].rows)
    rows = [_cells(name, score) for name, score in ordered]
    rows.append(_cells("all", result.overall))
    if result.seen.rows and result.unseen.rows:
        rows.append(_cells("of seen sources", result.seen))
        rows.append(_cells("of unseen sources", result.unseen))
    out = console()
    title = "Modelled against measured kernel time; errors are absolute percentages of measured"
    out.print(table(title, columns, rows, right=columns[1:]))
    if result.noise.get("rows"):
        out.print(
            f"noise floor: repeats of one configuration differ by {result.noise['median']}% "
            f"(median), {result.noise['p90']}% (worst tenth)"
        )
    if result.fitted_sources:
        out.print(
            f"{len(result.fitted_sources)} sources of this file were part of the fit: their rows "
            "are no test; 'temper chip n150 --evidence' shows errors on sources left out"
        )
    overall = result.overall
    out.print(f"{overall.predicted} of {overall.rows} rows predicted")
    _name(result.unpredicted)


def _name(listed: Sequence[Rejected]) -> None:
    for row in listed[:_SHOWN]:
        console().print(f"  line {row.number} ({row.op}): {row.reason}")
    if len(listed) > _SHOWN:
        console().print(f"  and {len(listed) - _SHOWN} more; --json lists all")


def _fit(rows_csv: Sequence[Path], output: Path | None, as_json: bool) -> None:
    from temper.cost import calibrate, constants, neighbours
    from temper.cost.rows import read_all

    rows, rejected = read_all(rows_csv)
    say = console(stderr=True).print
    if rejected and not as_json:
        say(f"{len(rejected)} rows cannot be used:")
        _name(rejected)
    fitted = calibrate.run(rows, say=say)
    made = calibrate.document(fitted, len(rejected))
    constants.parse(made)  # a fit that cannot be read back replaces nothing
    target = output or constants.DATA
    calibrate.write(target, made)
    beside = target.with_name(neighbours.DATA.name) if output is None else None
    if beside is not None:
        calibrate.write(beside, neighbours.document(fitted))
    summary = {"constants": str(target), "rows": made["rows"], "rejected": len(rejected),
               "sources": made["sources"], "held_out": made["held_out"],
               "balanced": made["balanced"], "in_band": made["in_band"],
               "in_fit": made["in_fit"], "noise": made["noise"]}  # fmt: skip
    if as_json:
        emit_json(summary)
        return
    held, fair, inside = made["held_out"], made["balanced"], made["in_band"]
    console().print(
        f"{made['rows']} rows of {len(made['sources'])} sources. On sources left out: median error "
        f"{held['median_ape']}%, worst tenth {held['p90_ape']}%; every source weighing the same: "
        f"{fair['median_ape']}% and {fair['p90_ape']}%. In the band without their source: "
        f"{inside['rows'] * 100:.0f}% of rows, {inside['sources'] * 100:.0f}% of a source on "
        f"average. Written to {target}"
    )
