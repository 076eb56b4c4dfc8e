"""``temper report``: a profile for people, in the terminal or as one HTML file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from temper.cli.output import console, emit_json, json_option, table
from temper.cli.region import region_options
from temper.cli.values import Whole

if TYPE_CHECKING:
    from temper.report.judge import Judged
    from temper.run.regions import Region


@click.command(
    epilog="Examples: 'temper report results/perf/device_ops_perf_trace', "
    "'temper report ops_perf_results.csv --by module', "
    "'temper report DIR --html report.html', 'temper report DIR --calls first', "
    "'temper report ops_perf_results.csv --from start --to stop --chip p150'."
)
@click.argument("profile", type=click.Path(path_type=Path))
@click.option(
    "--by",
    type=click.Choice(["op", "module", "line", "bound"]),
    help="Group by kind of op, module path, source line or bound.",
)
@click.option("--limit", default=10, show_default=True, type=Whole(1), help="Rows of a table.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    is_flag=False,
    flag_value=Path("report.html"),
    help="Write one self-contained HTML file (default report.html).",
)
@click.option(
    "--calls",
    type=click.Choice(["warm", "first", "all"]),
    default="warm",
    show_default=True,
    help="Which calls the figures are about; one-time work is shown by itself.",
)
@region_options
@click.option("--no-advice", is_flag=True, help="Leave the advice out.")
@json_option
def command(
    profile: Path,
    by: str | None,
    limit: int,
    html: Path | None,
    calls: str,
    region: Region,
    chip: str | None,
    no_advice: bool,
    as_json: bool,
) -> None:
    """Report a run folder, or an ops CSV recorded on a card by tt-metal (any version).

    Totals, the few ops that matter and why, memory, and what to change about it: of the warm
    calls, unless --calls asks for others.
    """
    from temper.report.advise import advise_profile
    from temper.report.summary import group_by, summarise, top_ops
    from temper.report.terminal import print_report
    from temper.run.opening import open_profile

    opened = open_profile(profile, calls, region, chip or "")
    judged: list[Judged] = []
    if opened.run is None:
        from temper.report.judge import judge

        table_judged, judged = judge(opened.table)
        opened = replace(opened, table=table_judged)
    advice = [] if no_advice else advise_profile(opened)
    if html is not None:
        from temper.report.html import write_html

        write_html(opened, html, advice=advice)
        click.echo(f"{html}: open it in a browser")
        return
    if as_json:
        device = opened.table.select(opened.table.is_device)
        emit_json(
            {
                "summary": summarise(opened).as_dict(),
                "ops": [vars(group) for group in top_ops(opened.table, limit)],
                "groups": [vars(group) for group in group_by(device, by or "op")],
                "judged": [item.as_dict() for item in judged],
                "advice": [item.as_dict() for item in advice],
            }
        )
        return
    print_report(console(), opened, advice, table=table, by=by or "", limit=limit, judged=judged)
