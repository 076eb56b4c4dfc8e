"""The boards as data: e75, e150, n150, n300 (one chip), p100, p150."""

from __future__ import annotations

import difflib

from temper.chips.architecture import ARCHITECTURES, Architecture
from temper.chips.chip import FIDELITY_PHASES, Chip, Evidence
from temper.chips.data import ALIASES, CHIPS
from temper.errors import UsageError

DEFAULT_CHIP = "n150"

__all__ = [
    "ARCHITECTURES",
    "CHIPS",
    "DEFAULT_CHIP",
    "FIDELITY_PHASES",
    "Architecture",
    "Chip",
    "Evidence",
    "get",
]


def get(name: str) -> Chip:
    """The chip of that name; aliases such as ``p150a`` or ``wormhole_b0`` are understood."""
    key = name.strip().lower()
    key = ALIASES.get(key, key)
    if key not in CHIPS:
        near = difflib.get_close_matches(key, [*CHIPS, *ALIASES], n=2)
        # By the names of the list alone: an alias that is not in it would be a riddle.
        names = list(dict.fromkeys(ALIASES.get(n, n) for n in near))
        raise UsageError(f"unknown chip {name!r}", allowed=" ".join(CHIPS), try_=names or None)
    return CHIPS[key]
