"""``temper legal``: every op of a compiled model offered to the real ttnn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from temper.cli.model import compile_options, load_model
from temper.cli.output import console, emit_json, json_option, table
from temper.targets.ttnn.environment import find

if TYPE_CHECKING:
    from temper.targets.ttnn.legality import Legality

_EPILOG = """\b
Examples:
  temper legal model.py:make --chip n150
  temper legal model.py:make --chip p150 --level 1 --json > legal.json
"""


@click.command(epilog=_EPILOG)
@click.argument("model")
@compile_options
@json_option
@click.pass_context
def command(
    ctx: click.Context, model: str, options: dict[str, Any], batch: int | None, as_json: bool
) -> None:
    """Offer every op of MODEL (file.py:callable) to ttnn, on a card or on a mocked device.

    Each op is accepted, refused with ttnn's message, or accepted with another result or other
    device ops than planned. Exits with 1 when one is refused or gives another result.
    """
    from temper.compiler.pipeline import compile_model
    from temper.options import resolve
    from temper.targets.ttnn.legality import check

    asked = resolve(options)
    environment = find(asked["chip"])
    loaded = load_model(model, batch)
    compiled = compile_model(loaded.model, loaded.inputs, loaded.kwargs, asked)
    found = [check(program, environment, asked) for program in compiled.programs]
    if as_json:
        emit_json([one.as_dict() for one in found])
    else:
        for one in found:
            _show(one)
    if not all(one.legal for one in found):
        ctx.exit(1)


def _show(found: Legality) -> None:
    out = console()
    where = "a mocked device (no kernel ran)" if found.mocked else "a card"
    counts = ", ".join(f"{n} {word}" for word, n in sorted(found.counts.items()))
    out.print(f"{found.program} on {found.chip}, offered to ttnn on {where}: {counts}",
              markup=False, style="bold")  # fmt: skip
    rows = [
        [v.op, v.kind, v.label, v.verdict, v.message, v.source]
        for v in found.verdicts
        if v.verdict not in ("accepted", "host")
    ]
    if rows:
        columns = ["op", "kind", "of", "verdict", "what ttnn says", "source"]
        out.print(table("not as planned", columns, rows, right=["op"]))
    out.print(
        f"peak SRAM per core: planned {found.sram[0]:,} B, ttnn {found.sram[1]:,} B "
        f"(tensors alone {found.tensors[0]:,} and {found.tensors[1]:,} B); "
        f"peak DRAM: planned {found.dram[0]:,} B, ttnn {found.dram[1]:,} B",
        markup=False,
    )
