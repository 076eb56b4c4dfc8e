"""One piece of advice: a change, what it gains, what it costs, and the line to paste."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from temper.units import time_text

# Gains below this part of the total are noise to a person.
WORTHWHILE = 0.01


@dataclass(frozen=True)
class Advice:
    """A change with its figures; ``then_ns`` has the band of whoever computed it."""

    title: str
    why: str
    paste: str
    now_ns: float
    then_ns: float
    low_ns: float
    high_ns: float
    accuracy: str = ""
    basis: str = "modelled"

    @property
    def gain_ns(self) -> float:
        return self.now_ns - self.then_ns

    @property
    def share(self) -> float:
        return self.gain_ns / self.now_ns if self.now_ns else 0.0

    @property
    def worthwhile(self) -> bool:
        return self.share >= WORTHWHILE

    def lines(self, number: int) -> list[str]:
        """As the terminal shows it."""
        band = ""
        if self.low_ns != self.then_ns or self.high_ns != self.then_ns:
            band = f" ({time_text(self.low_ns)} to {time_text(self.high_ns)})"
        text = [
            f"{number}. {self.title}: {self.share:.0%} less, "
            f"{time_text(self.now_ns)} -> {time_text(self.then_ns)}{band}, {self.basis}",
            f"   why    {self.why}",
        ]
        if self.accuracy:
            text.append(f"   costs  {self.accuracy}")
        text.append(f"   paste  {self.paste}")
        return text

    def as_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**plain, "gain_ns": self.gain_ns, "share": self.share}
