"""What commands that take a model share: the argument, the options, the batch."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from temper.cli.values import Whole, named_values

if TYPE_CHECKING:
    from temper.frontdoor.loader import Loaded


def option_pairs(help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """-O name=value, any number of times, as ``pairs``."""
    return click.option("-O", "--option", "pairs", multiple=True, metavar="NAME=VALUE", help=help)


def _set_target(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:  # the processes that a command starts see it too
        os.environ["TEMPER_TARGET"] = value


target_option = click.option(
    "--target",
    type=click.Choice(["virtual", "ttnn", "auto"]),
    callback=_set_target,
    expose_value=False,
    help="What runs the programs: the virtual chip, a card through ttnn, or the card if one is "
    "there (default: virtual, or TEMPER_TARGET).",
)


def compile_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--chip, --level, -O name=value and --batch; the options arrive as one mapping."""

    @click.option("--chip", help="e75, e150, n150, n300, p100 or p150 (default: kept, or n150).")
    @click.option("--level", type=Whole(0, 2), help="Optimization level (default: kept, or 2).")
    @option_pairs("Any compile option; 'temper options' lists them.")
    @click.option("--batch", type=Whole(1), help="Batch handed to the callable.")
    def wrapped(chip: str | None, level: int | None, pairs: tuple[str, ...], **rest: Any) -> Any:
        from temper.options import unless_set

        preferred = {"optimization_level": 2}
        options = unless_set(preferred) if level is None else {"optimization_level": level}
        if chip is not None:
            options = {**options, "chip": chip}
        return function(options={**options, **named_values("-O", pairs)}, **rest)

    wrapped.__name__ = function.__name__
    wrapped.__doc__ = function.__doc__
    for parameter in getattr(function, "__click_params__", []):
        wrapped.__click_params__.append(parameter)  # type: ignore[attr-defined]
    return wrapped


def load_model(argument: str, batch: int | None = None) -> Loaded:
    """The model argument of a command, loaded; torch is imported here and not before."""
    from temper.frontdoor.loader import load

    return load(argument, batch)
