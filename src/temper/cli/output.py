"""What commands share: the console, tables, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """``--json`` as every printing command has it; arrives as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def console(*, stderr: bool = False) -> Console:
    """A rich console: plain text when it is not a terminal or NO_COLOR is set.

    What is printed is shown as it is: names of files and modules may hold brackets and colons.
    """
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # A pipe has no width; 80 columns would cut tables that a file can hold.
    return Console(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if stream.isatty() else 140,
    )


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
) -> Table:
    """A table in the house style; columns named in ``right`` are right-aligned."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left")
    for row in rows:
        made.add_row(*[cell if isinstance(cell, Text) else Text(str(cell)) for cell in row])
    return made


def emit_json(value: Any) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)
