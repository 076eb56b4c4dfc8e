"""``temper chip``: a board's numbers and where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from temper import chips
from temper.chips import FIDELITY_PHASES
from temper.cli.output import console, emit_json, json_option, table

if TYPE_CHECKING:
    from temper.chips import Chip


@click.command(epilog="Examples: 'temper chip', 'temper chip n150', 'temper chip n150 --evidence'")
@click.argument("name", required=False)
@click.option("--evidence", is_flag=True, help="Show what the cost model was fitted to.")
@json_option
def command(name: str | None, evidence: bool, as_json: bool) -> None:
    """Show one board, or list all."""

    if name is None:
        if as_json:
            emit_json([chip.as_dict() for chip in chips.CHIPS.values()])
        else:
            _list(list(chips.CHIPS.values()))
        return
    chip = chips.get(name)
    if evidence:
        _evidence(chip, as_json)
        return
    if as_json:
        emit_json(chip.as_dict())
        return
    _show(chip)


def _list(all_chips: list[Chip]) -> None:
    rows = [
        [c.name, c.title, f"{c.grid[0]}x{c.grid[1]} of {c.cores}", f"{c.clock_mhz} MHz",
         f"{c.sram_usable_bytes:,} B".replace(",", " "), f"{c.dram_total_bytes >> 30} GiB",
         f"{c.dram_peak_gbps:g} / {c.dram_streaming_gbps:g}", f"{c.peak_tflops('LoFi'):.0f} / "
         f"{c.peak_tflops('HiFi4'):.0f}"]
        for c in all_chips
    ]  # fmt: skip
    columns = ["chip", "board", "compute cores", "clock", "SRAM per core", "DRAM",
               "GB/s peak / streaming", "TFLOPS LoFi / HiFi4 (modelled)"]  # fmt: skip
    console().print(table("", columns, rows, drop=["board"]))
    console().print("'temper chip NAME' shows every number with its source.", style="dim")


def _show(chip: Chip) -> None:

    out = console()
    out.print(f"{chip.name}  {chip.title}  ({chip.arch})", style="bold")
    skip = {"name", "title", "arch", "evidence", "notes", "datasheet_tflops", "datasheet_sram_mb"}
    rows = []
    for field, value in chip.__dict__.items():
        if field in skip:
            continue
        proof = chip.evidence.get(field)
        text = f"{value:#x}" if field == "pci_device" else _number(value)
        rows.append([
            field, text, (proof.source if proof else ""),
            (f"uncertain: {proof.uncertain}" if proof and proof.uncertain else ""),
        ])  # fmt: skip
    out.print(table("", ["figure", "value", "source", ""], rows))
    peaks = ", ".join(f"{f} {chip.peak_tflops(f):.1f}" for f in FIDELITY_PHASES)
    out.print(f"peak TFLOPS, modelled on the {chip.grid[0]}x{chip.grid[1]} grid: {peaks}")
    sheet = ", ".join(f"{k} {v:g}" for k, v in chip.datasheet_tflops.items())
    out.print(f"peak TFLOPS, datasheet: {sheet}; SRAM, datasheet: {chip.datasheet_sram_mb} MB")
    for note in chip.notes:
        out.print(f"note: {note}", style="dim")


def _evidence(chip: Chip, as_json: bool) -> None:
    """What the cost model was fitted to on this architecture, and how well it predicts."""
    from temper.cost import evidence

    rows = evidence.table(chip.arch)
    whole = evidence.summary()
    expected = evidence.guide(chip)
    if as_json:
        emit_json(
            {"chip": chip.name, "families": rows, "summary": whole, "guide_expects_gbps": expected}
        )
        return
    out = console()
    out.print(
        f"Fitted to measured op times of {chip.arch}. Unseen: each row predicted without its "
        "source; by source: every source weighs the same; seen: the rows of the fit itself. "
        "Errors are median / worst tenth."
    )
    columns = [
        "family", "rows", "sources", "unseen %", "by source %", "seen %", "bias %", "rank corr.",
        "in band %", "noise %",
    ]  # fmt: skip
    cells = [
        [
            e.family + (" *" if e.major else ""), e.rows, e.sources,
            _pair(e.median_ape, e.p90_ape), _pair(e.balanced_median, e.balanced_p90),
            _pair(e.seen_median, e.seen_p90), _figure(e.bias), _figure(e.spearman),
            "-" if e.in_band is None else f"{e.in_band * 100:.0f}", _figure(e.noise),
        ]
        for e in rows
    ]  # fmt: skip
    out.print(table("", columns, cells, right=columns[1:]))
    bad = ", ".join(f"{e.family} {e.median_ape:.0f}%" for e in evidence.worst(rows))
    out.print(f"worst with five rows or more: {bad or 'none'}; * judged one by one", style="dim")
    unseen, fair, seen = whole["held_out"], whole["balanced"], whole["in_fit"]
    out.print(
        f"all architectures, fit of {whole['date']}: {whole['rows']} rows of "
        f"{len(whole['sources'])} sources. Unseen {unseen['median_ape']}% (worst tenth "
        f"{unseen['p90_ape']}%), every source the same {fair['median_ape']}% "
        f"({fair['p90_ape']}%), seen {seen['median_ape']}% ({seen['p90_ape']}%); "
        f"{whole['in_band']['rows'] * 100:.0f}% of unseen rows in the band"
    )
    if expected:
        text = ", ".join(f"{name} {value:g}" for name, value in expected.items())
        out.print(
            "Grayskull rows come from ResNet-50 runs alone; other families use Wormhole's "
            f"efficiencies and are marked extrapolated. The tuning guide expects (GB/s): {text}"
        )


def _pair(median: float | None, worst: float | None) -> str:
    return "-" if median is None or worst is None else f"{median:.1f} / {worst:.0f}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if abs(value) <= 1 else f"{value:.1f}"


def _number(value: object) -> str:
    if isinstance(value, tuple):
        return "x".join(f"{v:#x}" if v > 0xFFF else str(v) for v in value)
    if isinstance(value, int) and value >= 100_000:
        return f"{value:,}".replace(",", " ")
    return f"{value:g}" if isinstance(value, float) else str(value)
