"""``temper run``: a script written for the card, on the virtual chip, unchanged."""

from __future__ import annotations

import click

from temper.cli.model import target_option
from temper.cli.values import Whole
from temper.errors import UsageError


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--chip", help="Board to model: e75, e150, n150, n300, p100, p150.")
@target_option
@click.option(
    "--clock",
    type=click.Choice(["wall", "device", "both"]),
    default="wall",
    show_default=True,
    help="What the script's time functions show: real time; modelled device and transfer time, "
    "and real time of the script's own work; or both, with compiling too.",
)
@click.option(
    "--draw",
    type=Whole(0),
    metavar="SEED",
    help="Draw the modelled times of this run from the model's band, with --clock device or both.",
)
@click.option("-m", "as_module", is_flag=True, help="Run a module, as python -m does.")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    chip: str | None,
    clock: str,
    draw: int | None,
    as_module: bool,
    script: str,
    args: tuple[str, ...],
) -> None:
    """Run a Python script or module with torch_xla, tt_torch, tracy, pybuda and forge at hand.

    Packages that are really installed are used; the others are stand-ins for the virtual chip,
    named once on stderr, also in processes that the script starts. Arguments after SCRIPT are
    the script's own.

    \b
    Examples:
      temper run examples/pytorch/mnist_performant.py
      temper run --chip p150 script.py --batch 32
      temper run --clock device benchmark.py
      temper run --clock device --draw 1 benchmark.py
      temper run --target ttnn script.py
      temper run -m pytest -q tests/test_model.py
    """
    from temper.compat.runner import run_script

    if draw is not None and clock == "wall":
        raise UsageError("--draw is about modelled time", try_="--clock device")
    run_script(script, args, chip=chip, clock=clock, draw=draw, as_module=as_module)
