"""The virtual clock: time functions that follow modelled device time, in this process only."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from temper import clock
from temper.errors import UsageError

_NAMES = ("perf_counter", "monotonic", "time")
# What waits for real events: its deadlines are of real time.
_WAITING = frozenset(
    ("asyncio", "concurrent", "execnet", "multiprocessing", "queue", "selectors", "socket",
     "socketserver", "subprocess", "threading")
)  # fmt: skip
_real: dict[str, Callable[..., Any]] = {}
_lock = threading.Lock()


class VirtualTime:
    """Nanoseconds since installation as the mode counts them; never runs backwards.

    device: modelled device and transfer time, and the real time of the script's own work between
    device calls: neither simulating the device nor compiling for it takes any.
    both: the same, and compiling takes its real time.
    """

    def __init__(self, mode: str) -> None:
        self._own = (clock.simulating, clock.compiling)[: 2 if mode == "device" else 1]
        self._modelled = clock.elapsed_ns()
        self._started = self._host_ns()
        self._last = 0

    def _host_ns(self) -> int:
        return clock.wall_ns() - sum(work.total_ns() for work in self._own)

    def now_ns(self) -> int:
        """What the script's clock shows."""
        passed = clock.elapsed_ns() - self._modelled + self._host_ns() - self._started
        with _lock:
            self._last = max(self._last, int(passed))
            return self._last


def install(mode: str, draw: int | None = None) -> None:
    """Replace the time module's clocks for the script; Temper's own measurements stay real.

    With ``draw``, a seed, modelled times are one draw from their band instead of its middle.
    """
    if mode not in clock.MODES:
        raise UsageError(f"no clock {mode!r}", allowed=clock.MODES)
    uninstall()
    clock.set_mode(mode)
    if mode == "wall":
        return
    clock.set_draw(draw)
    virtual = VirtualTime(mode)
    for name in _NAMES:
        _real[name], _real[f"{name}_ns"] = getattr(time, name), getattr(time, f"{name}_ns")
    for name in _NAMES:
        whole = _real[f"{name}_ns"]
        base_ns = whole()
        setattr(time, f"{name}_ns", _reader(virtual, whole, base_ns, 1))
        setattr(time, name, _reader(virtual, _real[name], base_ns, 1e9))

    _refresh_timeit()


def uninstall() -> None:
    """Give the time module its own functions back."""
    if _real:
        for name, function in _real.items():
            setattr(time, name, function)
        _real.clear()
        _refresh_timeit()
    clock.set_mode("wall")
    clock.set_draw(None)


def _reader(
    virtual: VirtualTime, real: Callable[[], Any], base_ns: int, unit: float
) -> Callable[[], Any]:
    def read() -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
        if caller == "temper" or caller in _WAITING:
            return real()
        shown = base_ns + virtual.now_ns()
        return shown if unit == 1 else shown / unit

    return read


def _refresh_timeit() -> None:
    """timeit binds its timer when it is imported; bind it again."""
    if "timeit" in sys.modules:
        importlib.reload(sys.modules["timeit"])
