"""The names under which other stacks had their torch.compile backends, all Temper's "tt".

While stand-ins are in use this file is loaded in place of torch's own module for torch_xla, when
Dynamo first looks for backends: importing Dynamo earlier would cost scripts a second and a half.
"""

from __future__ import annotations

import sys

REPLACED = "torch._dynamo.backends.torchxla"
_NAMES = ("openxla", "openxla_eval", "tt-experimental", "tt-legacy")


def register() -> None:
    """Give Dynamo the other stacks' names for Temper's backend."""
    from torch._dynamo.backends import registry

    from temper.frontdoor.backend import tt

    for name in _NAMES:
        registry._BACKENDS.setdefault(name, None)
        registry._COMPILER_FNS[name] = tt


def register_if_late() -> None:
    """For scripts that used Dynamo before they imported a stand-in."""
    if REPLACED in sys.modules:
        register()


if __name__ == REPLACED:
    register()
