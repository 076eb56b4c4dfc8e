"""Options that ``temper report`` and ``temper diff`` share: which part of a profile, which chip."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click


def region_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--from``, ``--to``, ``--whole`` and ``--chip``; they arrive as ``region`` and ``chip``."""

    @functools.wraps(function)
    def wrapped(*args: Any, start: str, end: str, whole: bool, **rest: Any) -> Any:
        from temper.run.regions import Region

        return function(*args, region=Region(start, end, whole), **rest)

    for option in (
        click.option("--chip", help="The card that a CSV is from, where it does not say."),
        click.option("--whole", is_flag=True, help="The whole CSV, whatever its signposts."),
        click.option("--to", "end", default="", metavar="SIGNPOST", help="Up to this signpost."),
        click.option(
            "--from",
            "start",
            default="",
            metavar="SIGNPOST",
            help="From this signpost; of a CSV with signposts the default is the last one.",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped
