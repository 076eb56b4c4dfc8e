"""``temper fit``: the largest batch that fits each level, and tables in SRAM."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from temper import chips
from temper.cli.language import fit_language
from temper.cli.output import console, emit_json, json_option, table
from temper.cli.values import Whole, kept_chip
from temper.errors import UsageError

if TYPE_CHECKING:
    from temper.chips import Chip
    from temper.tuning.fit_table import TableFit


@click.command(
    epilog="Examples: 'temper fit model.py:make', 'temper fit model.py:make --sequence', "
    "'temper fit --table 10000x128 --chip e75', 'temper fit --llm ./llama-3.2-1b --users 1,32'"
)
@click.argument("model", required=False)
@click.option("--chip", default=kept_chip, show_default="n150", help="Board.")
@click.option("--level", "levels", type=Whole(0, 2), multiple=True, help="Only these levels.")
@click.option("--limit", default=256, show_default=True, type=Whole(1), help="Largest to try.")
@click.option("--sequence", is_flag=True, help="Vary the sequence length instead of the batch.")
@click.option("--llm", metavar="MODEL", help="The longest context of a language model instead.")
@click.option("--users", default="1,8,32", show_default=True, help="Batches, with --llm.")
@click.option("--table", "table_size", metavar="ROWSxCOLUMNS", help="Ask about a table instead.")
@json_option
def command(
    model: str | None,
    chip: str,
    levels: tuple[int, ...],
    limit: int,
    sequence: bool,
    llm: str | None,
    users: str,
    table_size: str | None,
    as_json: bool,
) -> None:
    """Say what fits before anything runs; MODEL is file.py:callable, taking a batch."""
    if llm is not None:
        fit_language(llm, {"chip": chip, "optimization_level": max(levels, default=2)}, users,
                     as_json)  # fmt: skip
        return
    if table_size:
        _table(table_size, chip, as_json)
        return
    if not model:
        raise UsageError("temper fit needs a model or --table", try_=["--table 10000x128"])
    from temper.tuning.fit import fit_model

    with console(stderr=True).status("compiling") as status:
        fits = fit_model(
            model,
            chip,
            levels=levels or (0, 1, 2),
            limit=limit,
            sequence=sequence,
            progress=lambda text: status.update(f"compiling: {text}"),
        )
    if as_json:
        emit_json({"model": model, "chip": chip, "fits": fits})
        return
    rows = []
    for fit in fits:
        reach = f", DRAM would end near {fit.estimate:,}" if fit.estimate else ""
        rows.append(
            [
                fit.level,
                f"{'at least ' if fit.largest * 2 > fit.searched_to else ''}{fit.largest}",
                f"{fit.sram_bytes_per_core:,}",
                f"{fit.dram_bytes:,} of {fit.dram_capacity_bytes:,}",
                fit.stopped_by.split("\n")[0] + reach,
            ]
        )
    word = fits[0].dimension
    columns = ["level", f"largest {word}", "SRAM per core, B", "DRAM, B", "what stops the next"]
    out = console()
    out.print(table(f"{model} on {chip}", columns, rows, right=columns[:3]))
    for fit in fits:
        if "\n" in fit.stopped_by:
            out.print(f"level {fit.level}: {fit.stopped_by}")
    out.print("bytes: modelled by the allocator; nothing was run", style="dim")


def _table(text: str, chip: str, as_json: bool) -> None:
    from temper.tuning.fit_table import fit_table

    match = re.fullmatch(r"\s*(\d+)\s*[xX×*,]\s*(\d+)\s*", text)
    if not match:
        raise UsageError(f"{text!r} is no table size", try_=["--table 10000x128"])
    rows, columns = int(match[1]), int(match[2])
    board = chips.get(chip)
    found = fit_table(rows, columns, board.name)
    if as_json:
        emit_json({"chip": board.name, "rows": rows, "columns": columns, "formats": found})
        return
    cells = [
        [
            f.format,
            f"{f.size_bytes / 1e6:,.2f}",
            f"{f.bytes_per_core:,}",
            f"{f.usable_per_core:,}",
            "fits" if f.fits else "does not fit",
        ]
        for f in found
    ]
    heads = ["format", "MB", "B per core", "usable B per core", "SRAM"]
    out = console()
    out.print(
        table(f"{rows} x {columns} in the SRAM of {board.name}", heads, cells, right=heads[1:4])
    )
    first = next((f.format for f in found if f.fits), None)
    if first is None:
        out.print(f"no format fits SRAM: {_elsewhere(found, board)}")
    elif first != "float32":
        out.print(f"{first} makes it fit")
    out.print(
        f"MB are 10^6 bytes; datasheet SRAM {board.datasheet_sram_mb} MB over {board.cores} "
        f"cores; programs use {board.compute_cores} of them, less circular buffers",
        style="dim",
    )


def _elsewhere(found: Sequence[TableFit], board: Chip) -> str:
    """What is left for a table that no format brings into SRAM."""
    need = -(-found[-1].bytes_per_core // board.sram_usable_bytes)
    capacity = board.dram_banks * board.dram_bank_bytes
    held = f"the {capacity / 1e9:.1f} GB of DRAM"
    fits = [f for f in found if f.size_bytes <= capacity]
    if not fits:
        least = found[-1]
        boards = -(-least.size_bytes // capacity)
        return (
            f"nor {held}: the smallest format, {least.format}, takes {least.size_bytes / 1e9:,.1f} "
            f"GB, which is {boards:,} boards; keep the table on the host, or shorten it"
        )
    return (
        f"keep it in {held} as {fits[0].format} ({fits[0].size_bytes / 1e9:,.2f} GB), or split it "
        f"over {need} or more operators in SRAM"
    )
