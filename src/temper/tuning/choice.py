"""Which of several settings to take: the fastest, then the most accurate, the simplest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from temper.cost import ProgramCost
from temper.cost.bands import ratio

# Less than this is no difference, however sure the model is of it.
_LEAST = 0.005
# More than this is followed even where the band reaches 1: on average it would be lost.
_NOISE = 0.05
# Losses of accuracy that differ by less than this share are one: see sample.VALUES.
_SAME_LOSS = 0.10
# Below this much lost correlation nothing can be told apart in bfloat16 outputs.
_NO_LOSS = 1e-6

T = TypeVar("T")


@dataclass(frozen=True)
class Difference:
    """Time of one setting over that of another, with the 80% band of this ratio; modelled.

    The errors of two settings of one program are correlated, so the band of their ratio is far
    narrower than the band of either.
    """

    value: float
    low: float
    high: float

    @property
    def faster(self) -> bool:
        """Whether the first is faster: for sure, or by more than what passes for noise."""
        return self.value < 1.0 - (_LEAST if self.high < 1.0 else _NOISE)

    @property
    def slower(self) -> bool:
        """Whether the first is slower: for sure, or by more than what passes for noise."""
        return self.value > 1.0 + (_LEAST if self.low > 1.0 else _NOISE)

    @property
    def verdict(self) -> str:
        """faster, slower or no difference."""
        return "faster" if self.faster else "slower" if self.slower else "no difference"

    def as_dict(self) -> dict[str, object]:
        return {**self.__dict__, "verdict": self.verdict}


def difference(
    first: Sequence[ProgramCost],
    second: Sequence[ProgramCost],
    batch: int = 1,
    other_batch: int = 1,
) -> Difference:
    """Call time a sample of one setting (all its graphs) over another's.

    Host and link are the same for both; only the device's share of the call is uncertain.
    """
    time, other = (sum(c.call_ns for c in costs) for costs in (first, second))
    device = max(
        sum(c.device_ns for c in costs) / call
        for costs, call in ((first, time), (second, other))
    )  # fmt: skip
    value, low, _ = ratio(
        [op for c in first for op in c.ops], [op for c in second for op in c.ops]
    )  # fmt: skip
    width = math.log(value / low) * min(1.0, device)
    real = time / batch / (other / other_batch)
    return Difference(real, real * math.exp(-width), real * math.exp(width))


def same_loss(one: float, other: float) -> bool:
    """Whether two losses of accuracy cannot be told apart."""
    return abs(one - other) <= max(_SAME_LOSS * max(one, other), _NO_LOSS)


def choose(
    candidates: Sequence[T],
    differ: Callable[[T, T], Difference],
    loss: Callable[[T], float],
    effort: Callable[[T], tuple[float, ...]],
) -> T:
    """The fastest; among those not surely slower the most accurate; among those the simplest."""
    fastest = candidates[0]
    for one in candidates[1:]:
        if differ(one, fastest).value < 1.0:
            fastest = one
    equals = [c for c in candidates if c is fastest or not differ(c, fastest).slower]
    least = min(map(loss, equals))
    accurate = [c for c in equals if same_loss(loss(c), least)]
    return min(accurate, key=lambda c: (effort(c), differ(c, fastest).value))
