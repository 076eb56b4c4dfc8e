"""Eager ops on the device "tt" are host ops: count them, and tell whoever profiles."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

# name, start and end (time.perf_counter_ns), input tensors, output tensors (all on the host)
Observer = Callable[[str, int, int, list[torch.Tensor], list[torch.Tensor]], None]

clock_ns = time.perf_counter_ns


@dataclass
class EagerOps:
    """How often each op ran on the host because it was called outside of a compiled graph."""

    by_name: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.by_name.total()

    def reset(self) -> None:
        self.by_name.clear()


eager_ops = EagerOps()
_observer: Observer | None = None


def set_observer(callback: Observer | None) -> Observer | None:
    """Have every eager op reported to ``callback``; returns the one before. None ends it."""
    global _observer
    before, _observer = _observer, callback
    return before


def note(name: str, start_ns: int, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
    """Count an op that has just ended, and report it."""
    eager_ops.by_name[name] += 1
    if _observer is not None:
        _observer(name, start_ns, clock_ns(), inputs, outputs)


def observed() -> bool:
    """Whether somebody listens to the device's ops."""
    return _observer is not None
