"""The capture server: a loopback port that writes to disk what the profiled processes send.

A connection first shows the token of this run, which only the processes that the profiler starts
are told; until then 69 bytes of it are read. What follows goes to the capture's files as it comes.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import secrets
import selectors
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import BinaryIO

from temper.errors import BadFileError, UsageError
from temper.record.capture import Capture
from temper.record.client import PORT_VARIABLE, TOKEN_VARIABLE
from temper.record.log import ProcessLog
from temper.record.wire import HEADER, TOKEN_BYTES, TOKEN_FRAME, FrameCheck

DEFAULT_PORT = 8086  # Tracy's, and so the seed's
_TRIES = 100


# Connections that have not shown the token yet; beyond this many the oldest is closed.
_MAX_UNKNOWN = 64
_TOKEN_SIZE = HEADER.size + TOKEN_BYTES


class _Connection:
    """One peer: a stranger until it has shown the token, then a file of frames."""

    def __init__(self) -> None:
        self.greeting = b""
        self.file: BinaryIO | None = None
        self.check = FrameCheck()


class CaptureServer:
    """Listens on 127.0.0.1; a file for each process. One thread serves them all."""

    def __init__(self, port: int | None = None, capture: Capture | None = None) -> None:
        """A given port must be free; without one it is 8086 or the next free one.

        Without a capture the records go to a temporary folder, which ``stop`` takes away.
        """
        self._listener = _bind(port)
        self._temporary = None if capture else tempfile.mkdtemp(prefix="temper-capture-")
        self.capture = capture or Capture(Path(str(self._temporary)))
        self.port: int = self._listener.getsockname()[1]
        self.token = secrets.token_hex(TOKEN_BYTES // 2)
        self.accepted = 0  # connections that showed the token
        self.strangers = 0  # connections that did not, or spoke another protocol later
        self.problem = ""  # why records could not be written
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._waker = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._open: dict[socket.socket, _Connection] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name="capture-server", daemon=True)
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """What a process has to find in its environment to be recorded."""
        return {PORT_VARIABLE: str(self.port), TOKEN_VARIABLE: self.token}

    @property
    def connected(self) -> int:
        """Processes that are connected now."""
        return sum(state.file is not None for state in list(self._open.values()))

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Until every client has closed; False when some still have not."""
        deadline = time.monotonic() + timeout_s
        # A client that just ended may still wait in the listen queue.
        time.sleep(0.02)
        while self.connected and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.connected

    def stop(self) -> list[ProcessLog]:
        """Stop listening, take what is already in the sockets, and return the logs."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
        self._thread.join(timeout=10.0)
        for connection in list(self._open):
            self._close(connection)
        for sock in (self._listener, self._wake, self._waker):
            sock.close()
        self._selector.close()
        logs = self.capture.logs()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)
        return logs

    def _serve(self) -> None:
        while True:
            # Once stopping, go on only while something is waiting to be read.
            ready = self._selector.select(0.0 if self._stopping else None)
            sources = [key.fileobj for key, _ in ready if key.fileobj is not self._wake]
            if self._stopping and not sources:
                return
            for source in sources:
                assert isinstance(source, socket.socket)
                if source is self._listener:
                    self._accept()
                else:
                    self._receive(source)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        unknown = [other for other, state in self._open.items() if state.file is None]
        if len(unknown) >= _MAX_UNKNOWN:
            self.strangers += 1
            self._close(unknown[0])
        self._open[connection] = _Connection()
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, connection: socket.socket) -> None:
        state = self._open[connection]
        try:
            missing = _TOKEN_SIZE - len(state.greeting)
            data = connection.recv(1 << 20 if state.file else missing)
        except BlockingIOError:
            return
        except OSError:  # reset: the process was killed with data unread on its side
            data = b""
        if data:
            try:
                self._keep(state, data)
                return
            except BadFileError:
                self.strangers += 1
            except OSError as error:
                self.problem = error.strerror or str(error)
        self._close(connection)

    def _keep(self, state: _Connection, data: bytes) -> None:
        if state.file is not None:
            state.check.feed(data)
            _write_all(state.file, data)
            return
        state.greeting += data
        expected = HEADER.pack(TOKEN_BYTES, TOKEN_FRAME) + self.token.encode()
        if len(state.greeting) == _TOKEN_SIZE and hmac.compare_digest(state.greeting, expected):
            state.file = self.capture.open()
            self.accepted += 1
        elif not expected.startswith(state.greeting[: HEADER.size]):
            raise BadFileError("the peer does not speak the profiler's protocol")
        elif len(state.greeting) == _TOKEN_SIZE:
            raise BadFileError("the peer was not started by this profiler")

    def _close(self, connection: socket.socket) -> None:
        state = self._open.pop(connection)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()
        if state.file is not None:
            state.file.close()


def _write_all(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _bind(port: int | None) -> socket.socket:
    if port is not None and not 0 < port < 65536:
        raise UsageError(f"{port} is no port", allowed="1 to 65535")
    candidates = [port] if port is not None else [*range(DEFAULT_PORT, DEFAULT_PORT + _TRIES), 0]
    for candidate in candidates:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", candidate))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise UsageError(f"cannot listen on port {candidate}: {error.strerror}") from error
            if port is not None:
                raise UsageError(
                    f"port {port} is taken" + holder_of(port),
                    try_=["another -p", "no -p at all: the next free port is then used"],
                ) from error
    raise UsageError("no free port on this machine")


def holder_of(port: int) -> str:
    """`` by name (process id)`` of who listens there, if this user may know."""
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                name = psutil.Process(connection.pid).name()
                return f" by {name} (process {connection.pid})"
    except (psutil.Error, OSError):
        pass
    return ""
