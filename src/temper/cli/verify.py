"""``temper verify``: a model on a target against the virtual chip, op by op and end to end."""

from __future__ import annotations

from typing import Any

import click

from temper.cli.model import compile_options, load_model
from temper.cli.output import console, emit_json, json_option, table
from temper.cli.values import Number
from temper.errors import UsageError

_EPILOG = """\b
Examples:
  temper verify model.py:make --target ttnn
  temper verify model.py:make --target ttnn --floor 0.995 --json
"""


@click.command(epilog=_EPILOG)
@click.argument("model")
@click.option("--target", type=click.Choice(["ttnn"]), default="ttnn", show_default=True,
              help="What is compared with the virtual chip.")  # fmt: skip
@click.option("--floor", type=Number(above=0), default=0.99, show_default=True,
              help="Correlation (PCC) that an op must reach.")  # fmt: skip
@compile_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    target: str,
    floor: float,
    options: dict[str, Any],
    batch: int | None,
    as_json: bool,
) -> None:
    """Run MODEL (file.py:callable) on the target and compare with the virtual chip.

    Every op is fed the virtual chip's inputs, then the whole program runs. Exits with 1 when an
    op leaves the band. A mocked device computes nothing: its figures say only that calls were
    accepted.
    """
    from dataclasses import asdict

    from temper.compiler.pipeline import compile_model
    from temper.frontdoor.inputs import graph_inputs
    from temper.options import resolve
    from temper.targets.ttnn.verify import verify

    asked = resolve(options)
    loaded = load_model(model, batch)
    compiled = compile_model(loaded.model, loaded.inputs, loaded.kwargs, asked)
    if len(compiled.graphs) != 1:
        raise UsageError("temper verify takes a model that is captured as one graph",
                         given=f"{len(compiled.graphs)} graphs")  # fmt: skip
    built = compiled.graphs[0]
    given = graph_inputs(built, loaded.inputs, loaded.kwargs)
    found = verify(built.program, built.weights, asked, given, floor=floor)
    first = found.first_bad
    if as_json:
        emit_json({**asdict(found), "first_bad": asdict(first) if first else None})
    else:
        out = console()
        if found.mocked:
            out.print("a mocked device computes nothing: all results are zeros", style="bold")
        rows = [[o.name, o.kind, f"{o.pcc:.6f}", f"{o.largest_error:.4g}", o.source]
                for o in (*found.ops, *found.outputs)]  # fmt: skip
        columns = ["value", "kind", "PCC", "largest error", "source"]
        out.print(table("against the virtual chip", columns, rows, right=columns[2:4]))
        word = (
            f"first op that leaves the band: {first.name} ({first.kind})" if first else "all good"
        )
        out.print(word, markup=False)
    if first is not None and not found.mocked:
        ctx.exit(1)
