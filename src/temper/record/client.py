"""The client: a recorder's sink that sends everything to the capture server at once."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Mapping
from typing import Any

from temper.record.wire import (
    EVENTS_AT_ONCE_BYTES,
    EVENTS_FRAME,
    TOKEN_FRAME,
    frame,
    json_frame,
)

# A capture server is found by its port; the token shows that it was told to this process.
PORT_VARIABLE = "TEMPER_PROFILE_PORT"
TOKEN_VARIABLE = "TEMPER_PROFILE_TOKEN"

# A stopped server must not stall the run: after this long without progress the client gives up.
_SEND_TIMEOUT_S = 10.0


class SocketSink:
    """Frames over a loopback connection. A server that went away is not the run's problem."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self._lock = threading.Lock()
        self._socket: socket.socket | None = socket.create_connection(("127.0.0.1", port), 5.0)
        self._socket.settimeout(_SEND_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._send(frame(TOKEN_FRAME, token.encode()))

    @classmethod
    def from_environment(cls) -> SocketSink:
        """To the server that the environment names; ``OSError`` or ``ValueError`` without one."""
        return cls(int(os.environ.get(PORT_VARIABLE, "")), os.environ.get(TOKEN_VARIABLE, ""))

    def message(self, message: Mapping[str, Any]) -> None:
        self._send(json_frame(message))

    def events(self, data: bytes) -> None:
        for start in range(0, len(data), EVENTS_AT_ONCE_BYTES):
            self._send(frame(EVENTS_FRAME, data[start : start + EVENTS_AT_ONCE_BYTES]))

    def close(self) -> None:
        """A last word, so that the server can tell an end from a kill."""
        self._send(json_frame({"type": "bye"}))
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_WR)
                self._socket.close()
                self._socket = None

    def drop(self) -> None:
        """Close a forked copy of the parent's connection without ending the parent's stream."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, data: bytes) -> None:
        with self._lock:
            if self._socket is None:
                return
            try:
                self._socket.sendall(data)
            except OSError:
                self._socket.close()
                self._socket = None
