"""``temper chip``: a board's numbers and where they come from."""

from __future__ import annotations

import click

from temper.cli.output import console, emit_json, json_option, table


@click.command(epilog="Examples: 'temper chip', 'temper chip n150', 'temper chip n150 --evidence'")
@click.argument("name", required=False)
@click.option("--evidence", is_flag=True, help="Show what the cost model was fitted to.")
@json_option
def command(name: str | None, evidence: bool, as_json: bool) -> None:
    """Show one board, or list all."""
    from temper import chips  # noqa: PLC0415

    if name is None:
        if as_json:
            emit_json([chip.as_dict() for chip in chips.CHIPS.values()])
        else:
            _list(list(chips.CHIPS.values()))
        return
    chip = chips.get(name)
    if evidence:
        from temper.cost.evidence import show  # noqa: PLC0415

        show(chip, as_json=as_json)
        return
    if as_json:
        emit_json(chip.as_dict())
        return
    _show(chip)


def _list(all_chips: list) -> None:  # type: ignore[type-arg]
    rows = [
        [c.name, c.title, f"{c.grid[0]}x{c.grid[1]} of {c.cores}", f"{c.clock_mhz} MHz",
         f"{c.sram_usable_bytes:,} B".replace(",", " "), f"{c.dram_total_bytes >> 30} GiB",
         f"{c.dram_peak_gbps:g} / {c.dram_streaming_gbps:g}", f"{c.peak_tflops('LoFi'):.0f} / "
         f"{c.peak_tflops('HiFi4'):.0f}"]
        for c in all_chips
    ]  # fmt: skip
    columns = ["chip", "board", "compute cores", "clock", "SRAM a core", "DRAM",
               "GB/s peak / streaming", "TFLOPS LoFi / HiFi4 (modelled)"]  # fmt: skip
    console().print(table("", columns, rows))
    console().print("'temper chip NAME' shows every number with its source.", style="dim")


def _show(chip) -> None:  # type: ignore[no-untyped-def]
    from temper.chips import FIDELITY_PHASES  # noqa: PLC0415

    out = console()
    out.print(f"[bold]{chip.name}[/bold]  {chip.title}  ({chip.arch})")
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


def _number(value: object) -> str:
    if isinstance(value, tuple):
        return "x".join(f"{v:#x}" if v > 0xFFF else str(v) for v in value)
    if isinstance(value, int) and value >= 100_000:
        return f"{value:,}".replace(",", " ")
    return f"{value:g}" if isinstance(value, float) else str(value)
