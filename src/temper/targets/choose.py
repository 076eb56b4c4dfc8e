"""Which target runs a program."""

from __future__ import annotations

from temper.options import Options
from temper.targets.protocol import Target
from temper.targets.virtual.target import VirtualTarget


def choose(options: Options) -> Target:
    """The target that these options ask for."""
    return VirtualTarget()
