"""Profiling that the environment asks for: a capture server's port, or tt-metal's own switch."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable, Sequence
from multiprocessing import parent_process
from multiprocessing.util import Finalize, register_after_fork
from pathlib import Path

from temper.errors import TemperError
from temper.record import recorder as recording
from temper.record.client import PORT_VARIABLE, SocketSink
from temper.record.log import ProcessLog
from temper.record.recorder import Recorder, Sink

RIGHT_VARIABLE = "TT_METAL_DEVICE_PROFILER"
GUIDE_VARIABLE = "TT_METAL_PROFILER"
# The first process writes ops_perf_results.csv; processes that it starts add their own id.
_OWNER_VARIABLE = "TEMPER_PROFILE_OWNER"

_started: list[Sink] = []


@functools.cache
def start_from_environment() -> None:
    """Begin recording if the environment says so; once, when the first front door is imported."""
    if os.environ.get(PORT_VARIABLE):
        _connect()
    elif _is_on(RIGHT_VARIABLE) or _is_on(GUIDE_VARIABLE):
        if not _is_on(RIGHT_VARIABLE):
            _say(f"{GUIDE_VARIABLE}=1 works here; tt-metal's own name is {RIGHT_VARIABLE}=1")
        _record_to_file()


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "false", "off", "no")


def _connect() -> None:
    text = os.environ[PORT_VARIABLE]
    try:
        sink = SocketSink.from_environment()
    except (OSError, ValueError) as error:
        _say(f"no profiler listens at {PORT_VARIABLE}={text} ({error}); running without it")
        return
    _started[:] = [sink]
    recording.activate(sink)
    recording.on_fork(_reconnect_in_child)
    atexit.register(_finish_connection)
    _at_end_of_children(_finish_connection)


def _finish_connection() -> None:
    active = recording.ACTIVE
    if active is not None:
        active.flush()
    for sink in _started:
        recording.deactivate(sink)
    _started.clear()


def _reconnect_in_child(_: Recorder) -> Sequence[Sink]:
    for sink in _started:
        if isinstance(sink, SocketSink):
            sink.drop()
    try:
        sink = SocketSink.from_environment()
    except (OSError, ValueError):
        _started.clear()
        return ()
    _started[:] = [sink]
    return (sink,)


def _record_to_file() -> None:
    first = _OWNER_VARIABLE not in os.environ
    os.environ.setdefault(_OWNER_VARIABLE, str(os.getpid()))
    log = ProcessLog()
    _started[:] = [log]
    recording.activate(log)
    recording.on_fork(_record_in_child)
    atexit.register(_write, "" if first else f"_{os.getpid()}")
    _at_end_of_children(lambda: _write(f"_{os.getpid()}"))


def _record_in_child(_: Recorder) -> Sequence[Sink]:
    atexit.unregister(_write)
    log = ProcessLog()
    _started[:] = [log]
    atexit.register(_write, f"_{os.getpid()}")
    return (log,)


class _Anchor:
    """Multiprocessing calls back for objects only as long as they live."""


_anchor = _Anchor()


def _at_end_of_children(finish: Callable[[], None]) -> None:
    """Children of multiprocessing leave without atexit handlers, and forget what was registered
    before they began: this registers anew in each."""
    register_after_fork(_anchor, lambda _: Finalize(None, finish, exitpriority=0))
    if parent_process() is not None:  # the runtime was loaded in such a child
        Finalize(None, finish, exitpriority=0)


def output_directory() -> Path:
    """Where tt-metal writes: $TT_METAL_PROFILER_DIR, else generated/profiler here."""
    return Path(os.environ.get("TT_METAL_PROFILER_DIR") or Path("generated") / "profiler")


def _write(suffix: str) -> None:
    from temper.report.writers import write_ops_csv
    from temper.run.logs import run_from_logs

    active = recording.ACTIVE
    if active is not None:
        active.flush()
    logs = [sink for sink in _started if isinstance(sink, ProcessLog) and not sink.empty]
    _started.clear()
    if not logs:
        return
    target = output_directory() / f"ops_perf_results{suffix}.csv"
    try:
        run = run_from_logs(logs)
        write_ops_csv(run, target)
    except (TemperError, OSError) as error:
        _say(f"the profile could not be written: {error}")
        return
    _say(f"profile of {run.op_count} ops (modelled device times) in {target}")


def _say(text: str) -> None:
    print(f"temper: {text}", file=sys.stderr)
