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
# What damaged JSON raises on its way into records.
WRONG_SHAPE = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError)
# Larger than any program's JSON that makes sense; a bigger length is a foreign protocol.
MAX_FRAME_BYTES = 1 << 30


def frame(kind: int, payload: bytes) -> bytes:
    return HEADER.pack(len(payload), kind) + payload


def json_frame(message: Mapping[str, Any]) -> bytes:
    return frame(JSON_FRAME, json.dumps(message, default=str).encode())


def frames(buffer: bytearray) -> Iterator[tuple[int, bytes]]:
    """Take the whole frames off the front of ``buffer``; a torn one stays for the next call."""
    while len(buffer) >= HEADER.size:
        length, kind = HEADER.unpack_from(buffer)
        if length > MAX_FRAME_BYTES or kind not in (JSON_FRAME, EVENTS_FRAME):
            raise BadFileError("the peer does not speak the profiler's protocol")
        if len(buffer) < HEADER.size + length:
            return
        payload = bytes(buffer[HEADER.size : HEADER.size + length])
        del buffer[: HEADER.size + length]
        yield kind, payload


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
