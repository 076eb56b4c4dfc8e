"""The recorder: what the runtime calls while it runs, and the one switch that it checks.

The runtime's side, complete::

    from temper.record import recorder

    active = recorder.ACTIVE                      # one attribute check when profiling is off
    if active is not None:
        if self._handle is None or self._handle[0] is not active:
            handle = active.begin_program(program, cost, meta)
            self._handle = (active, handle)       # a handle belongs to one recorder
        active.record_call(handle, start_ns, end_ns, first_call=..., traced=..., replay=...)

All times are ``time.perf_counter_ns()`` of the host. A handle stands for one program with one
``ProgramCost``: begin the same program again with ``estimate(program, traced=True)`` for traced
calls. Constant evaluation is a program of its own, whose ops are ``program.const_ops``, called
with ``const_eval=True``. ``meta`` may hold anything JSON: ``options`` (name -> value or
``[value, origin]``), ``seeds``, ``passes``, ``metadata`` (the CSV's PROGRAM_METADATA).

A call is one 40-byte event however many ops the program has; ops are expanded when the run is
read, so a million device ops cost the run next to nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from temper.record.events import PACKER, SIZE, Flag, Kind

if TYPE_CHECKING:
    from temper.program import Program

# The process-wide switch: None when off.
ACTIVE: Recorder | None = None

# Longest time that events stay in this process while it is busy, and while it is idle.
FLUSH_NS = 20_000_000
_IDLE_FLUSH_S = 0.1


class Sink(Protocol):
    """Where a recorder's output goes: a log in this process, or a capture server."""

    def message(self, message: Mapping[str, Any]) -> None:
        """One JSON message: hello, program, string, op_host."""

    def events(self, data: bytes) -> None:
        """Whole events, packed."""

    def close(self) -> None:
        """No more will come."""


class Recorder:
    """Packs events of this process and hands them to its sinks. Safe to call from any thread."""

    def __init__(self, *sinks: Sink) -> None:
        self._lock = threading.RLock()
        self._buffer = bytearray()
        self._sinks: list[Sink] = []
        self._names: dict[str, int] = {}
        self._programs: list[Mapping[str, Any]] = []
        self._flushed_ns = time.perf_counter_ns()
        for sink in sinks:
            self.add_sink(sink)

    # What the runtime calls

    def begin_program(
        self, program: Program, cost: Any, meta: Mapping[str, Any] | None = None
    ) -> int:
        """Make a program and its cost known; the handle goes into ``record_call``."""
        from temper.record.wire import program_message

        with self._lock:
            handle = len(self._programs)
            message = program_message(handle, program, cost, meta or {})
            self._programs.append(message)
            self._send(message)
        return handle

    def record_call(
        self,
        handle: int,
        host_start_ns: int,
        host_end_ns: int,
        *,
        first_call: bool = False,
        traced: bool = False,
        replay: int = 0,
        const_eval: bool = False,
        op_host_ns: Sequence[int] | None = None,
    ) -> None:
        """One execution of a program; ``op_host_ns`` are the host's measured times per op."""
        flags = first_call | (traced << 1) | (const_eval << 2)
        self._buffer.extend(
            PACKER.pack(1, flags, 0, handle, host_start_ns, host_end_ns, replay, 0.0)
        )
        if op_host_ns is not None:
            self._op_host(handle, op_host_ns)
        if host_end_ns - self._flushed_ns > FLUSH_NS:
            self.flush()

    def transfer(
        self,
        direction: str,
        size_bytes: int,
        start_ns: int,
        end_ns: int,
        modelled_ns: float = 0.0,
        name: str = "",
    ) -> None:
        """Bytes that crossed the link; ``direction`` is ``"in"`` (to the chip) or ``"out"``."""
        kind = Kind.TRANSFER_IN if direction == "in" else Kind.TRANSFER_OUT
        self._add(kind, 0, self._name(name), start_ns, end_ns, size_bytes, modelled_ns)

    def memory(
        self, pool: str, size_bytes: int, address: int = 0, name: str = "", time_ns: int = 0
    ) -> None:
        """An allocation (positive) or release (negative) in ``"dram"`` or ``"sram"``."""
        kind = Kind.MEMORY_SRAM if pool == "sram" else Kind.MEMORY_DRAM
        now = time_ns or time.perf_counter_ns()
        self._add(kind, 0, self._name(name), now, now, size_bytes, float(address))

    def span(self, name: str, start_ns: int, end_ns: int, category: str = "host") -> None:
        """Something that the host did: capture, compile, weight upload, trace capture, …"""
        self._add(Kind.SPAN, self._name(category), self._name(name), start_ns, end_ns)

    def mark(self, name: str) -> None:
        """A point in time that the user named."""
        now = time.perf_counter_ns()
        self._add(Kind.MARK, 0, self._name(name), now, now)

    # Sinks

    def add_sink(self, sink: Sink) -> None:
        """A sink that is told what it needs of the past: who we are, programs and names."""
        from temper.record.wire import hello_message

        with self._lock:
            self.flush()
            sink.message(hello_message())
            for name, index in self._names.items():
                sink.message({"type": "string", "index": index, "text": name})
            for message in self._programs:
                sink.message(message)
            self._sinks.append(sink)

    def remove_sink(self, sink: Sink) -> None:
        with self._lock:
            self.flush()
            if sink in self._sinks:
                self._sinks.remove(sink)
        sink.close()

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return tuple(self._sinks)

    def flush(self) -> None:
        """Hand over everything noted so far."""
        with self._lock:
            data = bytes(self._buffer)
            data = data[: len(data) - len(data) % SIZE]
            del self._buffer[: len(data)]
            self._flushed_ns = time.perf_counter_ns()
            if data:
                for sink in self._sinks:
                    sink.events(data)

    def restart(self, *sinks: Sink) -> None:
        """After a fork: forget what the parent will send, and begin anew with these sinks."""
        self._lock = threading.RLock()
        self._buffer = bytearray()
        self._sinks = []
        for sink in sinks:
            self.add_sink(sink)

    # Internals

    def _add(
        self,
        kind: Kind,
        other: int,
        ref: int,
        start_ns: int,
        end_ns: int,
        value: int = 0,
        modelled: float = 0.0,
    ) -> None:
        self._buffer.extend(
            PACKER.pack(kind, 0, min(other, 0xFFFF), ref, start_ns, end_ns, value, modelled)
        )
        if end_ns - self._flushed_ns > FLUSH_NS:
            self.flush()

    def _name(self, text: str) -> int:
        index = self._names.get(text)
        if index is None:
            with self._lock:
                index = self._names.setdefault(text, len(self._names))
                self._send({"type": "string", "index": index, "text": text})
        return index

    def _op_host(self, handle: int, op_host_ns: Sequence[int]) -> None:
        """Sent after its call event: a reader gives it to the last call of that program."""
        with self._lock:
            self.flush()
            times = [int(ns) for ns in op_host_ns]
            self._send({"type": "op_host", "program": handle, "ns": times})

    def _send(self, message: Mapping[str, Any]) -> None:
        for sink in self._sinks:
            sink.message(message)


def activate(sink: Sink) -> Recorder:
    """Record into ``sink``, beside whatever records already."""
    global ACTIVE
    if ACTIVE is None:
        ACTIVE = Recorder(sink)
        _start_flusher(ACTIVE)
    else:
        ACTIVE.add_sink(sink)
    return ACTIVE


def deactivate(sink: Sink) -> None:
    """Stop recording into ``sink``; the switch goes off with the last one."""
    global ACTIVE
    if ACTIVE is not None:
        ACTIVE.remove_sink(sink)
        if not ACTIVE.sinks:
            ACTIVE = None


def _start_flusher(recorder: Recorder) -> None:
    """A thread that hands over what a busy loop left behind; it ends with its recorder."""

    def run() -> None:
        while ACTIVE is recorder:
            time.sleep(_IDLE_FLUSH_S)
            recorder.flush()

    threading.Thread(target=run, name="temper-profiler", daemon=True).start()


# Set by whoever starts recording, so that a forked child can do the same for itself.
_resume_in_child: Callable[[Recorder], Sequence[Sink]] | None = None


def on_fork(resume: Callable[[Recorder], Sequence[Sink]]) -> None:
    """``resume`` gives a forked child its sinks; without one a child records nothing."""
    global _resume_in_child
    _resume_in_child = resume


def _after_fork() -> None:
    global ACTIVE
    recorder = ACTIVE
    if recorder is None:
        return
    sinks = _resume_in_child(recorder) if _resume_in_child else ()
    if not sinks:
        ACTIVE = None
        return
    recorder.restart(*sinks)
    _start_flusher(recorder)


os.register_at_fork(after_in_child=_after_fork)

# Re-exported for readers of flags.
__all__ = ["ACTIVE", "Flag", "Recorder", "Sink", "activate", "deactivate", "on_fork"]
