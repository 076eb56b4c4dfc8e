"""Running a command under the profiler: its output, its signals, its exit code, its children."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from types import FrameType

_GRACE_S = 5.0  # from our signal to a harder one
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_CHILD_SUBREAPER = 36


def run_command(command: str, environment: Mapping[str, str]) -> int:
    """Run a shell command in a session of its own and return its exit code, 128 + n for signal n.

    Ctrl-C, SIGTERM and SIGHUP are passed on; what has not ended after a grace is killed, and so
    is every process that it started. A second Ctrl-C kills at once.
    """
    _adopt_orphans()
    child = subprocess.Popen(command, shell=True, env=dict(environment), start_new_session=True)
    stop: list[int] = []
    with _forwarding(child, stop):
        code = _wait(child, stop)
    if stop:
        _end_descendants()
        return 128 + stop[0] if code == 0 else code
    return code


def _wait(child: subprocess.Popen[bytes], stop: list[int]) -> int:
    asked = 0.0
    hard = iter((signal.SIGTERM, signal.SIGKILL))
    while True:
        try:
            code = child.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            if stop and not asked:
                asked = time.monotonic()
            if len(stop) > 1:
                _signal_group(child.pid, signal.SIGKILL)
            elif stop and time.monotonic() - asked > _GRACE_S:
                _signal_group(child.pid, next(hard, signal.SIGKILL))
                asked = time.monotonic()
            continue
        return 128 - code if code < 0 else code


@contextlib.contextmanager
def _forwarding(child: subprocess.Popen[bytes], stop: list[int]) -> Iterator[None]:
    def forward(number: int, _: FrameType | None) -> None:
        stop.append(number)
        _signal_group(child.pid, number)

    before = {}
    for number in _SIGNALS:
        # Signals can be handled in the main thread only; elsewhere the caller has its own way.
        with contextlib.suppress(ValueError):
            before[number] = signal.signal(number, forward)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _adopt_orphans() -> None:
    """Linux: processes whose parent dies become ours, so that none can slip away."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_descendants() -> None:
    import psutil

    left = psutil.Process().children(recursive=True)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(left, timeout=2.0)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=2.0)
