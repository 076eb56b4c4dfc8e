"""Stand-ins and clock in the Python processes that a script starts, by their environment alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

# The clock of the run; its presence is what asks for stand-ins.
VARIABLE = "TEMPER_RUN_CLOCK"
# The seed of its draw from the model's band, where one was asked for.
DRAW_VARIABLE = "TEMPER_RUN_DRAW"
_STARTUP = str(Path(__file__).parent / "startup")


def environment(
    clock: str, draw: int | None = None, base: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Variables that hand the run on: Python imports sitecustomize from the path's first folder.

    It covers spawned workers, pools, data loaders, pytest-xdist and ``sys.executable`` alike;
    forked processes have everything already.
    """
    rest = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry]
    path = os.pathsep.join([_STARTUP, *(entry for entry in rest if entry != _STARTUP)])
    return {VARIABLE: clock, DRAW_VARIABLE: "" if draw is None else str(draw), "PYTHONPATH": path}


def start() -> None:
    """In a process so started, before anything else of it runs."""
    clock = os.environ.get(VARIABLE)
    if clock is None:
        return
    from temper.compat import install

    install.install([entry for entry in sys.path if entry != _STARTUP])
    if clock != "wall":
        from temper.compat import clock as virtual

        draw = os.environ.get(DRAW_VARIABLE)
        virtual.install(clock, int(draw) if draw else None)
