"""Expected ranges: what a guide or a user says a run should reach, and whether it does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from temper.chips.guide import GUIDE_GBPS
from temper.errors import UsageError

# The guide's advice on batches for the same workloads.
GUIDE_BATCHES = {"stateless": (64, 128), "stateful": (32, 64)}

_RANGE = re.compile(r"([\d.eE+]+):([\d.eE+]+)\s*(GB/s|samples/s|ms|)", re.IGNORECASE)


@dataclass(frozen=True)
class Expected:
    """A range that a figure should lie in."""

    name: str
    low: float
    high: float
    unit: str = "GB/s"  # GB/s | samples/s | ms
    typical: float | None = None

    def judge(self, value: float) -> str:
        """``below``, ``within`` or ``above``."""
        return "below" if value < self.low else "above" if value > self.high else "within"

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


def parse(text: str, chip: str) -> Expected:
    """``stateless`` or ``stateful`` (the guide's table), or LOW:HIGH with an optional unit."""
    word = text.strip().lower()
    if word in GUIDE_BATCHES:
        found = GUIDE_GBPS.get((chip, word))
        if found is None:
            boards = sorted({board for board, _ in GUIDE_GBPS})
            raise UsageError(
                f"the guide has no expected range for {word} work on {chip}",
                allowed=boards,
                try_=[f"--chip {boards[0]}", "--expect LOW:HIGH"],
            )
        return Expected(f"guide, {word} on {chip}", found[0], found[2], "GB/s", found[1])
    match = _RANGE.fullmatch(text.strip())
    try:
        low, high = (float(match[1]), float(match[2])) if match else (1.0, 0.0)
    except ValueError:
        low, high = 1.0, 0.0
    if match is None or low > high:
        raise UsageError(
            f"{text!r} is no expected range",
            needs="stateless, stateful, or LOW:HIGH with GB/s (default), samples/s or ms",
            try_=["--expect 6:10", "--expect 900:1200samples/s"],
        )
    unit = {"gb/s": "GB/s", "samples/s": "samples/s", "ms": "ms", "": "GB/s"}[match[3].lower()]
    return Expected("given", low, high, unit)
