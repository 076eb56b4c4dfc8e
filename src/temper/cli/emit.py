"""``temper emit``: a compiled model as a script that needs ttnn and numpy alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from temper.cli.model import compile_options, load_model
from temper.cli.output import emit_json, json_option

_EPILOG = """\b
Examples:
  temper emit model.py:make -o out
  temper emit model.py:make -o out --chip p150 --level 2
  python out/model.py --check          on a machine with ttnn, Temper not needed
"""


@click.command(epilog=_EPILOG)
@click.argument("model")
@click.option("-o", "--output", "folder", required=True, type=click.Path(path_type=Path),
              help="Folder for the script and its files.")  # fmt: skip
@compile_options
@json_option
def command(
    model: str, folder: Path, options: dict[str, Any], batch: int | None, as_json: bool
) -> None:
    """Write MODEL (file.py:callable) as ttnn calls, with weights, inputs and expected outputs.

    A model of several graphs gives a script for each.
    """
    from temper.compiler.pipeline import compile_model
    from temper.frontdoor.inputs import graph_inputs
    from temper.options import resolve
    from temper.targets.ttnn.emit import emit

    asked = resolve(options)
    loaded = load_model(model, batch)
    compiled = compile_model(loaded.model, loaded.inputs, loaded.kwargs, asked)
    written = []
    for index, graph in enumerate(compiled.graphs):
        name = "model.py" if len(compiled.graphs) == 1 else f"model_g{index}.py"
        whole = len(compiled.graphs) == 1
        given = graph_inputs(graph, loaded.inputs, loaded.kwargs) if whole else None
        written += emit(graph.program, graph.weights, asked, folder, given, file=name)
    if as_json:
        emit_json([str(path) for path in written])
        return
    for path in written:
        click.echo(f"{path}  {path.stat().st_size:,} B")
    click.echo(f"next: python {written[0]} --check, where ttnn is installed")
