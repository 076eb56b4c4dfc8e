"""``temper options``: every compile option."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from temper.cli.output import console, emit_json, json_option
from temper.errors import UsageError

if TYPE_CHECKING:
    from temper.options import Option


@click.command(epilog="Examples: 'temper options', 'temper options trace', 'temper options --json'")
@click.argument("word", default="")
@json_option
def command(word: str, as_json: bool) -> None:
    """List compile options, their values here and where these come from.

    WORD keeps those whose name or meaning holds it.
    """
    from rich.padding import Padding
    from rich.text import Text

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
    out = console()
    for o in shown:
        out.print(Text.assemble((f"{o.name} = {_text(resolved[o.name])}", "bold"),
                                f"  from {resolved.origin(o.name)}"), soft_wrap=True)  # fmt: skip
        allowed = o.allowed if o.kind != "bool" else "true or false"
        facts = [o.meaning, f"allowed: {allowed}", f"default: {_default(o)}", f"of {o.origin}"]
        if o.env:
            facts.append(f"environment {o.env}")
        if o.without_effect:
            facts.append(f"accepted without effect: {o.without_effect}")
        out.print(Padding("; ".join(facts), (0, 0, 0, 4)))
    out.print(
        "Strongest first: options={...}, set_custom_compile_options, environment, temper.toml or "
        "[tool.temper] of pyproject.toml (here or above), level, default. "
        "Dashes and underscores are the same.", style="dim",
    )  # fmt: skip


def _default(option: Option) -> str:
    default = _text(option.default)
    if option.levels:
        default += (
            " (" + ", ".join(f"level {k}: {_text(v)}" for k, v in option.levels.items()) + ")"
        )
    return default


def _text(value: object) -> str:
    return (
        "unset"
        if value in (None, "")
        else str(value).lower()
        if value in (True, False)
        else str(value)
    )
