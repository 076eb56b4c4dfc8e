"""``temper passes``: what each compiler pass did to a model."""

from __future__ import annotations

import click

from temper.cli.model import compile_options, load_model
from temper.cli.output import console, emit_json, json_option, table


@click.command(
    epilog="Examples: 'temper passes model.py:make', "
    "'temper passes model.py:make --level 1 -O enable_fusing=false --program'"
)
@click.argument("model")
@compile_options
@click.option("--program", "show_program", is_flag=True, help="Print the device program too.")
@json_option
def command(
    model: str, options: dict[str, object], batch: int | None, show_program: bool, as_json: bool
) -> None:
    """Compile MODEL (file.py:callable or package.module:callable) and list the passes."""
    from temper.compiler.moving import moving_share
    from temper.compiler.pipeline import compile_model
    from temper.cost import estimate
    from temper.program.text import to_text

    loaded = load_model(model, batch)
    compiled = compile_model(loaded.model, loaded.inputs, loaded.kwargs, options)
    shares = []
    for graph in compiled.graphs:
        cost = estimate(graph.program, traced=bool(graph.options["enable_trace"]))
        shares.append(moving_share([(graph.program, cost)]))
    if as_json:
        emit_json([
            {"graph": g.program.name, "ops": len(g.program.ops), "moving_share": share,
             "const_ops": len(g.program.const_ops), "stages_seconds": g.stages,
             "passes": [p.__dict__ for p in g.passes],
             "weight_formats": [e.as_dict() for e in g.weight_report],
             "options": g.options.provenance(),
             **({"program": to_text(g.program)} if show_program else {})}
            for g, share in zip(compiled.graphs, shares, strict=True)
        ])  # fmt: skip
        return
    out = console()
    for graph, share in zip(compiled.graphs, shares, strict=True):
        program = graph.program
        out.print(
            f"{program.name} for {program.chip}: {len(program.ops)} ops, "
            f"{len(program.host_ops)} on the host, {len(program.const_ops)} done once (const-eval)",
            style="bold",
        )
        rows = [
            [p.name, str(p.hits) if p.enabled else "off", f"{p.seconds * 1e3:.1f}", p.meaning]
            for p in graph.passes
        ]
        out.print(table("", ["pass", "hits", "ms", "what it does"], rows, right=["hits", "ms"]))
        out.print(f"modelled: {share:.0%} of the device time only moves data")
        stages = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in graph.stages.items())
        out.print(f"measured on this host: {stages}", style="dim")
        for entry in graph.weight_report:
            out.print(
                f"  {entry.parameter}: {entry.requested} asked by {entry.origin!r} -> "
                f"{entry.effective} {entry.reason}"
            )
        if show_program:
            click.echo(to_text(program))
