"""Messages between a profiled process and whoever keeps its records: JSON, events and framing.

A frame is a 4-byte little-endian length, one type byte and the payload. A reader keeps every
whole frame, so a client that is killed in the middle of one loses that frame only.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from temper import clock
from temper._version import __version__
from temper.errors import BadFileError
from temper.program import Program, codec

HEADER = struct.Struct("<IB")
JSON_FRAME = 1
EVENTS_FRAME = 2
TOKEN_FRAME = 3  # the first of a connection: the secret that the profiler gave its children
TOKEN_BYTES = 64
# What damaged JSON raises on its way into records.
WRONG_SHAPE = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError)
# Larger than any message that makes sense: a program of 100,000 ops is 60 MB of JSON, and events
# are handed over every 20 ms. A bigger length is a foreign protocol.
MAX_FRAME_BYTES = {JSON_FRAME: 1 << 28, EVENTS_FRAME: 1 << 26}
EVENTS_AT_ONCE_BYTES = 1 << 22


def frame(kind: int, payload: bytes) -> bytes:
    """A message with its length and kind in front."""
    return HEADER.pack(len(payload), kind) + payload


def json_frame(message: Mapping[str, Any]) -> bytes:
    """A message that is JSON."""
    return frame(JSON_FRAME, json.dumps(message, default=str).encode())


def frames(buffer: bytearray) -> Iterator[tuple[int, bytes]]:
    """Take the whole frames off the front of ``buffer``; a torn one stays for the next call."""
    while len(buffer) >= HEADER.size:
        length, kind = HEADER.unpack_from(buffer)
        check_header(length, kind)
        if len(buffer) < HEADER.size + length:
            return
        payload = bytes(buffer[HEADER.size : HEADER.size + length])
        del buffer[: HEADER.size + length]
        yield kind, payload


def check_header(length: int, kind: int) -> None:
    """Refuse a frame before any of it is kept."""
    if length > MAX_FRAME_BYTES.get(kind, -1):
        raise BadFileError("the peer does not speak the profiler's protocol")


class FrameCheck:
    """Follows a stream of frames without keeping them: memory for a header, however long it is."""

    def __init__(self) -> None:
        self._left = 0  # bytes of the current frame still to come
        self._head = b""

    def feed(self, data: bytes) -> None:
        """Raises at the first frame that is too long or of no known kind."""
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            need = HEADER.size - len(self._head)
            self._head += data[at : at + need]
            at += need
            if len(self._head) == HEADER.size:
                length, kind = HEADER.unpack(self._head)
                check_header(length, kind)
                self._left, self._head = length, b""


def hello_message() -> dict[str, Any]:
    """Who this process is. ``perf_ns`` and ``unix_ns`` are the same moment on both clocks."""
    return {
        "type": "hello",
        "pid": os.getpid(),
        "parent": os.getppid(),
        "argv": list(getattr(sys, "orig_argv", sys.argv)),
        "cwd": os.getcwd(),
        "perf_ns": time.perf_counter_ns(),
        "unix_ns": time.time_ns(),
        "temper": __version__,
        "python": platform.python_version(),
        "clock": clock.mode(),  # what the script's own time functions show
    }


def program_message(
    handle: int, program: Program, cost: Any, meta: Mapping[str, Any]
) -> dict[str, Any]:
    """A program with its costs, as it is sent once."""
    return {
        "type": "program",
        "handle": handle,
        "program": codec.to_json(program),
        "cost": cost_to_json(cost),
        "meta": dict(meta),
    }


def cost_to_json(cost: Any) -> dict[str, Any]:
    """A ``ProgramCost`` (or a mapping of the same fields) as JSON."""
    if isinstance(cost, Mapping):
        return dict(cost)
    plain = {f.name: getattr(cost, f.name) for f in dataclasses.fields(cost)}
    plain["ops"] = [
        {
            f.name: dict(value) if isinstance(value := getattr(op, f.name), Mapping) else value
            for f in dataclasses.fields(op)
        }
        for op in cost.ops
    ]
    return plain
