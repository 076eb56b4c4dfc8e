"""``temper options``: every compile option."""

from __future__ import annotations

import difflib

import click

from temper.cli.output import console, emit_json, json_option, table
from temper.errors import UsageError


@click.command(epilog="Examples: 'temper options', 'temper options trace', 'temper options --json'")
@click.argument("word", default="")
@json_option
def command(word: str, as_json: bool) -> None:
    """List compile options; WORD keeps those whose name or meaning holds it."""
    from temper.options import OPTIONS, resolve

    resolved = resolve()
    asked = word.lower().replace("-", "_")
    shown = [
        o
        for o in OPTIONS
        if word.lower() in o.meaning.lower() or any(asked in n for n in (o.name, *o.aliases))
    ]
    if not shown:
        near = difflib.get_close_matches(asked, [o.name for o in OPTIONS], n=3, cutoff=0.5)
        raise UsageError(f"no compile option holds {word!r}", try_=near, see="'temper options'")
    if as_json:
        emit_json([
            {"name": o.name, "aliases": o.aliases, "type": o.kind, "default": o.default,
             "levels": dict(o.levels), "allowed": o.allowed, "meaning": o.meaning,
             "without_effect": o.without_effect, "origin": o.origin, "environment": o.env,
             "value": resolved[o.name], "from": resolved.origin(o.name)}
            for o in shown
        ])  # fmt: skip
        return
    rows = []
    for o in shown:
        default = _text(o.default)
        if o.levels:
            default += " (" + ", ".join(f"{k}: {_text(v)}" for k, v in o.levels.items()) + ")"
        meaning = o.meaning + (f" [{o.env}]" if o.env else "")
        if o.without_effect:
            meaning += f"; accepted without effect: {o.without_effect}"
        rows.append([o.name, o.allowed if o.kind != "bool" else "bool", default, o.origin, meaning])
    columns = ["option", "allowed", "default (level: value)", "from", "meaning"]
    console().print(table("", columns, rows, drop=["from"]))
    for name in resolved:
        if resolved.explicit(name) and any(o.name == name for o in shown):
            value = _text(resolved[name])
            console().print(f"set here: {name} = {value}, from {resolved.origin(name)}")
    console().print(
        "Strongest first: options={...}, set_custom_compile_options, environment, temper.toml or "
        "[tool.temper] of pyproject.toml (here or above), level, default. "
        "Dashes and underscores are the same.", style="dim",
    )  # fmt: skip


def _text(value: object) -> str:
    return (
        "unset"
        if value in (None, "")
        else str(value).lower()
        if value in (True, False)
        else str(value)
    )
