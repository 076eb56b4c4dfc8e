"""The raw log of one process: messages and events as they arrived, kept until they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from temper.record.events import SIZE, Kind, decode
from temper.record.wire import EVENTS_FRAME, WRONG_SHAPE


class ProcessLog:
    """A sink that keeps everything. What cannot be understood is counted, never fatal."""

    def __init__(self) -> None:
        self.hello: Mapping[str, Any] = {}
        self.programs: dict[int, Mapping[str, Any]] = {}
        self.names: dict[int, str] = {}
        # Index of a call event -> measured host time of each of its ops.
        self.op_host_ns: dict[int, list[int]] = {}
        self.closed = False
        self.damaged = 0
        self._data = bytearray()

    def message(self, message: Mapping[str, Any]) -> None:
        kind = message.get("type")
        if kind == "hello":
            self.hello = message
        elif kind == "program":
            self.programs[int(message["handle"])] = message
        elif kind == "string":
            self.names[int(message["index"])] = str(message["text"])
        elif kind == "bye":
            self.closed = True
        elif kind == "op_host":
            index = self._find_last_call(int(message["program"]))
            if index is not None:
                self.op_host_ns[index] = [int(ns) for ns in message["ns"]]

    def events(self, data: bytes) -> None:
        self._data += data

    def close(self) -> None:
        self.closed = True

    def frame(self, kind: int, payload: bytes) -> None:
        """A frame from the wire."""
        if kind == EVENTS_FRAME:
            self.events(payload)
            return
        try:
            message = json.loads(payload)
            self.message(message)
        except (*WRONG_SHAPE, RecursionError):
            self.damaged += 1

    @property
    def table(self) -> np.ndarray:
        return decode(self._data)

    @property
    def empty(self) -> bool:
        return len(self._data) < SIZE

    def _find_last_call(self, program: int) -> int | None:
        # Only the last few events can be meant: the call was flushed just before its times.
        tail = decode(self._data[-64 * SIZE :])
        hits = np.flatnonzero((tail["kind"] == Kind.CALL) & (tail["ref"] == program))
        return len(self._data) // SIZE - len(tail) + int(hits[-1]) if len(hits) else None
