"""``temper compare``: two models, settings, boards or runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from temper.cli.diff import command as diff
from temper.cli.output import console, emit_json, json_option, table
from temper.cli.progress import progress, quiet_option
from temper.cli.values import named_values
from temper.errors import UsageError
from temper.units import bytes_text, time_text

if TYPE_CHECKING:
    from temper.tuning.compare import Compared


@click.command(
    epilog="Examples: 'temper compare model.py:make other.py:make', "
    "'temper compare model.py:make -a level=1 -b level=2', "
    "'temper compare model.py:make -b chip=p150 -b experimental_weight_dtype=bfp_bf8', "
    "'temper compare run-a run-b'"
)
@click.argument("first", metavar="A")
@click.argument("second", metavar="[B]", required=False)
@click.option("-a", "first_pairs", multiple=True, metavar="NAME=VALUE", help="Of A: any compile "
              "option, chip, batch or dtype (level 2 and a trace unless given).")  # fmt: skip
@click.option("-b", "second_pairs", multiple=True, metavar="NAME=VALUE", help="The same of B.")
@click.option("--accuracy/--no-accuracy", default=True, help="Run both for their accuracy.")
@quiet_option
@json_option
def command(
    first: str,
    second: str | None,
    first_pairs: tuple[str, ...],
    second_pairs: tuple[str, ...],
    accuracy: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compare A with B: models as file.py:callable, or two run folders; B is A unless given."""
    runs = [name for name in (first, second or first) if Path(name).exists()]
    if runs:
        if len(runs) == 1 or first_pairs or second_pairs or second is None:
            raise UsageError(
                "a run is compared with another run",
                given=f"{first} and {second}",
                try_=["temper compare run-a run-b"],
            )

        diff.main(
            [first, second, *(["--json"] if as_json else [])], standalone_mode=False,
            prog_name="temper compare",
        )  # fmt: skip
        return
    if (second or first) == first and first_pairs == second_pairs:
        raise UsageError(
            "A and B are the same", try_=["-b level=1", "-b chip=p150", "another model for B"]
        )
    from temper.tuning.compare import compare_models

    with progress("compare", quiet) as said:
        compared = compare_models(
            (first, named_values("-a", first_pairs)),
            (second or first, named_values("-b", second_pairs)),
            accuracy=accuracy,
            progress=said.now,
        )
    if as_json:
        emit_json(compared)
        return
    _print(compared)


def _print(compared: Compared) -> None:

    out = console()
    one, two = compared.before, compared.after
    rows: list[list[Any]] = [
        ["model", one.model, two.model],
        ["settings", _settings(one.options), _settings(two.options)],
        ["board", one.chip, two.chip],
        ["batch", one.batch, two.batch],
        ["call", time_text(one.call_ns), time_text(two.call_ns)],
        ["band", *(f"{time_text(s.low_ns)} to {time_text(s.high_ns)}" for s in (one, two))],
        ["samples/s", f"{one.samples_per_s:,.0f}", f"{two.samples_per_s:,.0f}"],
        ["accuracy", _accuracy(one.pcc, one.relative_rms), _accuracy(two.pcc, two.relative_rms)],
        ["ops", one.ops, two.ops],
        ["DRAM", bytes_text(one.dram_bytes), bytes_text(two.dram_bytes)],
        ["limited by", one.limited_by, two.limited_by],
    ]
    out.print(table("", ["", "A", "B"], rows))
    found = compared.difference
    word = {"faster": "B is faster", "slower": "B is slower"}.get(found.verdict, "no difference")
    out.print(
        f"{word}: B takes {found.value:.3f} times as long per sample as A "
        f"({found.low:.3f} to {found.high:.3f})"
    )
    changed = [c for c in compared.changes if c.kind != "same"]
    if changed:
        lines = [
            (c.kind, c.name, time_text(c.before_ns), time_text(c.after_ns),
             f"{c.delta_ns / 1e3:+.1f} µs", f"{c.before_count:g} -> {c.after_count:g}")
            for c in changed[:12]
        ]  # fmt: skip
        out.print(table("", ["", "op", "before", "after", "change", "count"], lines,
                        right=["before", "after", "change", "count"]))  # fmt: skip
    out.print("; ".join(f"{name} {time_text(a)} -> {time_text(b)}"
                        for name, (a, b) in compared.parts.items()))  # fmt: skip
    out.print("times and bytes: modelled, of one call; accuracy: measured against float32, sums "
              "as on the chip", style="dim")  # fmt: skip


def _settings(options: Any) -> str:
    return ", ".join(f"{k}={v}" for k, v in options.items()) or "level 2, trace"


def _accuracy(pcc: float | None, rms: float | None) -> str:
    if rms is None:
        return "not run"
    return f"PCC {pcc:.5f}" if pcc is not None else f"relative RMS {rms:.3g}"
