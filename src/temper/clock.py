"""The modelled device clock of this process: advanced by the runtime, read by `temper run`."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

MODES = ("wall", "device", "both")

# Real time, also where `temper run --clock` has replaced the functions of the time module.
wall_ns = time.perf_counter_ns

# Standard deviations that a band of 80% reaches to either side.
_BAND = 1.2816

# Called with the nanoseconds of each advance.
listeners: list[Callable[[float], None]] = []
_elapsed_ns = 0.0
_mode = "wall"
_deviations = 0.0


class OwnWork:
    """Real time that Temper itself takes; what threads do at once or nested counts once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._since = 0
        self._ended = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._open:
                self._since = wall_ns()
            self._open += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._open -= 1
            if not self._open:
                self._ended += wall_ns() - self._since

    def total_ns(self) -> int:
        """All of it so far, what is still under way included."""
        with self._lock:
            return self._ended + (wall_ns() - self._since if self._open else 0)


simulating = OwnWork()  # calls of programs, on whatever target runs them
compiling = OwnWork()  # tracing a model and making a program of it


def advance(time_ns: float) -> None:
    """Device and transfer time of one call has passed."""
    global _elapsed_ns
    _elapsed_ns += time_ns
    for listener in listeners:
        listener(time_ns)


def elapsed_ns() -> float:
    """All modelled time so far."""
    return _elapsed_ns


def mode() -> str:
    """What a script's clock shows: wall (the default), device or both."""
    return _mode


def set_mode(mode: str) -> None:
    """Record what the script's clock shows; `temper.compat.clock` is what changes it."""
    global _mode
    _mode = mode


def set_draw(seed: int | None) -> None:
    """Let this process's clock be one draw from the band of the model; None: its middle.

    The band is the model's error, which all calls of a program share: one draw holds for the whole
    process, and the spread shows between runs with different seeds, not between calls of one.
    """
    global _deviations
    _deviations = 0.0 if seed is None else random.Random(seed).gauss(0.0, 1.0)


def drawn(middle_ns: float, low_ns: float, high_ns: float) -> float:
    """The factor of this process's draw for a time with this band of 80%."""
    if not _deviations or middle_ns <= 0 or low_ns <= 0:
        return 1.0
    end = high_ns / middle_ns if _deviations > 0 else middle_ns / low_ns
    return float(end ** (_deviations / _BAND))
