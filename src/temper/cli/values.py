"""Values on the command line: what each kind allows, told the same way by every command."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from temper.errors import UsageError

_PICTURES = (".png", ".svg", ".pdf")
# Older versions of click have no type argument here.
if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType


class _Checked(_ParamType):
    """A value that is refused in the house template, which names what is allowed."""

    allowed = ""

    def refuse(self, value: object, param: click.Parameter | None, **more: str) -> UsageError:
        if param is None:
            flag = "the value"
        else:
            flag = max(param.opts, key=len) if isinstance(param, click.Option) else "the argument"
        return UsageError(f"{flag} cannot be {str(value)!r}", allowed=self.allowed, **more)


class Whole(_Checked):
    """A whole number between two ends, each of which may be open."""

    name = "n"

    def __init__(self, least: int, most: int | None = None) -> None:
        self.least, self.most = least, most
        self.allowed = _ends("a whole number", least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(str(value).replace("_", ""))
        except ValueError:
            raise self.refuse(value, param) from None
        if number < self.least or (self.most is not None and number > self.most):
            raise self.refuse(value, param)
        return number


class Number(_Checked):
    """A finite number between two ends."""

    name = "number"

    def __init__(
        self, least: float | None = None, most: float | None = None, *, above: float | None = None
    ) -> None:
        self.least, self.most, self.above = least, most, above
        self.allowed = _ends("a number", least, most, above)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            number = float(value)
        except ValueError:
            raise self.refuse(value, param) from None
        if (
            not math.isfinite(number)
            or (self.least is not None and number < self.least)
            or (self.above is not None and number <= self.above)
            or (self.most is not None and number > self.most)
        ):
            raise self.refuse(value, param)
        return number


class Share(_Checked):
    """``5%``, or the same as a share, ``0.05``."""

    name = "percent"
    allowed = "a percentage such as 5%, or a share below 1 such as 0.05"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(%?)\s*", str(value))
        if match is None:
            raise self.refuse(value, param)
        number = float(match[1])
        if match[2]:
            return number / 100
        if number >= 1:  # 5 could be meant as 5% or as 500%
            raise self.refuse(value, param, try_=f"{match[1]}%")
        return number


class Picture(_Checked):
    """A file to draw into; its ending names the format."""

    name = "file"
    allowed = f"a file name that ends in {', '.join(_PICTURES[:-1])} or {_PICTURES[-1]}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if path.suffix.lower() not in _PICTURES:
            raise self.refuse(value, param)
        return path


def named_values(flag: str, pairs: Iterable[str]) -> dict[str, str]:
    """``NAME=VALUE`` texts of a repeatable option as a mapping; ``level`` is a short name."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(
                f"{flag} {pair} is no option with a value",
                needs="NAME=VALUE",
                try_=f"{flag} {name.strip() or 'enable_trace'}=true",
            )
        name = name.strip().replace("-", "_")  # so that one name cannot be given as two
        found["optimization_level" if name == "level" else name] = value
    return found


def _ends(what: str, least: float | None, most: float | None, above: float | None = None) -> str:
    if above is not None:
        return f"{what} above {above:g}" + (f", at most {most:g}" if most is not None else "")
    if least is not None and most is not None:
        return f"{what} from {least:g} to {most:g}"
    if least is not None:
        return f"{what} of at least {least:g}"
    return f"{what} of at most {most:g}" if most is not None else what


def kept_chip(otherwise: str = "") -> str:
    """The board of commands that were given none: the user's settings, else ``otherwise``.

    Without another the default of all commands.
    """
    from temper.options import resolve

    resolved = resolve()
    return otherwise if otherwise and not resolved.explicit("chip") else str(resolved["chip"])
