"""The modelled device clock of this process: advanced by the runtime, read by `temper run`."""

from __future__ import annotations

import time
from collections.abc import Callable

MODES = ("wall", "device", "both")

# Real time, also where `temper run --clock` has replaced the functions of the time module.
wall_ns = time.perf_counter_ns

# Called with the nanoseconds of each advance.
listeners: list[Callable[[float], None]] = []
_elapsed_ns = 0.0
_spent_ns = 0.0
_mode = "wall"


def advance(time_ns: float, spent_ns: float = 0.0) -> None:
    """Device and transfer time of one call has passed; simulating it took ``spent_ns`` here."""
    global _elapsed_ns, _spent_ns
    _elapsed_ns += time_ns
    _spent_ns += spent_ns
    for listener in listeners:
        listener(time_ns)


def elapsed_ns() -> float:
    """All modelled time so far."""
    return _elapsed_ns


def spent_ns() -> float:
    """Real time that went into simulating the device so far."""
    return _spent_ns


def mode() -> str:
    """What a script's clock shows: wall (the default), device (modelled time only) or both."""
    return _mode


def set_mode(mode: str) -> None:
    """Record what the script's clock shows; `temper.compat.clock` is what changes it."""
    global _mode
    _mode = mode
