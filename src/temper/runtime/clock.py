"""The modelled device clock of this process: advanced by the runtime, read by `temper run`."""

from __future__ import annotations

from collections.abc import Callable

# Called with the nanoseconds of each advance; `temper run --clock device` adds one.
listeners: list[Callable[[float], None]] = []
_elapsed_ns = 0.0


def advance(time_ns: float) -> None:
    """Device and transfer time of one call has passed."""
    global _elapsed_ns
    _elapsed_ns += time_ns
    for listener in listeners:
        listener(time_ns)


def elapsed_ns() -> float:
    """All modelled time so far."""
    return _elapsed_ns
