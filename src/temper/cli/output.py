"""What commands share: the console, tables, JSON."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from temper.units import hanging, piped_width, shown

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType

_STDOUT = "temper.stdout"
# A column of words is not folded below this many characters.
_FOLDED = 24


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--json`` as every printing command has it; arrives as ``as_json``."""

    @functools.wraps(function)
    def wrapped(*args: Any, as_json: bool, **rest: Any) -> Any:
        with only_json() if as_json else contextlib.nullcontext():
            return function(*args, as_json=as_json, **rest)

    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(wrapped)


@contextlib.contextmanager
def only_json() -> Iterator[None]:
    """Standard output for `emit_json` alone: what a user's model prints goes to standard error."""
    meta = click.get_current_context().meta
    meta[_STDOUT] = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        del meta[_STDOUT]


def console(*, stderr: bool = False) -> Console:
    """A rich console: plain text when it is not a terminal or NO_COLOR is set.

    What is printed is shown as it is: names of files and modules may hold brackets and colons.
    """
    from rich.console import Console
    from rich.text import Text

    class SafeConsole(Console):
        """Prints text as text: what is in a name cannot act on the terminal."""

        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str(shown(text), **how)

    stream = sys.stderr if stderr else sys.stdout
    return SafeConsole(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if stream.isatty() else piped_width(),
    )


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> Group:
    """A table in the house style; columns named in ``right`` are right-aligned and never broken.

    Where the terminal is too narrow, the columns named in ``drop`` are left out one by one, and
    the table says so.
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    cells = [
        [cell if isinstance(cell, Text) else Text(shown(str(cell))) for cell in row] for row in rows
    ]
    kept = list(range(len(columns)))
    least = []
    for index, name in enumerate(columns):
        head = max(map(len, name.split()), default=0)
        body = max((row[index].cell_len for row in cells), default=0)
        least.append(max(head, body if name in right else min(body, _FOLDED)))
    width = console().width
    # A head that is wider than its figures is broken where the table would not fit otherwise.
    heads = [len(name) for name in columns]
    if sum(max(head, wide) + 3 for head, wide in zip(heads, least, strict=True)) <= width:
        least = [max(head, wide) for head, wide in zip(heads, least, strict=True)]

    def missing(gap: int) -> bool:
        return sum(least[i] + gap for i in kept) > width

    gap = 2 if missing(3) else 3
    left_out = []
    for name in drop:
        if missing(gap):
            kept.remove(columns.index(name))
            left_out.append(name)
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1) if gap == 3 else (0, 1, 0, 0))
    for index in kept:
        name = columns[index]
        made.add_column(
            Text("\n".join(textwrap.wrap(name, max(1, least[index]))) if name in right else name),
            justify="right" if name in right else "left",
            no_wrap=name in right and not missing(gap),
            min_width=None if missing(gap) else least[index],
            overflow="fold",
        )
    for row in cells:
        made.add_row(*[row[index] for index in kept])
    # Beside the table and not of it: rich would break them to the table's width.
    parts: list[RenderableType] = [Text(shown(title), style="bold")] if title else []
    parts.append(made)
    if left_out:
        parts.append(Text(f"left out at this width: {', '.join(left_out)}", style="dim"))
    return Group(*parts)


def labelled(label: str, text: str, indent: int = 10) -> str:
    """A line with a word in front, broken to the console's width below its own beginning."""
    return hanging(f"  {label:<{indent - 2}}{text}", console().width, indent)


def emit_json(value: Any) -> None:
    """One JSON document on standard output; times of the user's own constants say whose."""
    cost = sys.modules.get("temper.cost.constants")  # who has not loaded it has timed nothing
    if isinstance(value, Mapping) and cost is not None and cost.correction():
        value = {"cost_data": cost.correction(), **value}
    context = click.get_current_context(silent=True)
    out = context.meta.get(_STDOUT) if context is not None else None
    click.echo(json.dumps(value, indent=2, default=_plain), file=out)


def _plain(value: Any) -> Any:
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)
