"""Which target runs a program: the one asked for, or the card where there is one."""

from __future__ import annotations

import warnings

from temper.options import Options
from temper.targets.protocol import Target
from temper.targets.ttnn.environment import TtnnError, find, problems
from temper.targets.virtual.target import VirtualTarget


def choose(options: Options) -> Target:
    """The target that these options ask for; ``auto`` says in one line what it took and why."""
    asked = options["target"]
    if asked == "virtual":
        return VirtualTarget()
    if asked == "ttnn":
        return _ttnn(options["chip"])
    target, why = automatic(options["chip"])
    warnings.warn(f"target auto took {target.name}: {why}", stacklevel=2)
    return target


def automatic(chip: str) -> tuple[Target, str]:
    """The card if ttnn and a card are there, else the virtual chip; and the reason."""
    try:
        wrong = problems(find(chip))
    except TtnnError as error:
        return VirtualTarget(), error.what
    if wrong:
        return VirtualTarget(), wrong[0]
    return _ttnn(chip), "ttnn and a card are there"


def _ttnn(chip: str) -> Target:
    # Loaded late: its table and its worker are needed by few.
    from temper.targets.ttnn.target import TtnnTarget

    return TtnnTarget(chip)
