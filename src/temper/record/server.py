"""The capture server: a loopback port that keeps whatever any number of processes send."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import threading
import time

from temper.errors import BadFileError, UsageError
from temper.record.log import ProcessLog
from temper.record.wire import frames

DEFAULT_PORT = 8086  # Tracy's, and so the seed's
_TRIES = 100


class CaptureServer:
    """Listens on 127.0.0.1; one log for each connection. One thread serves them all."""

    def __init__(self, port: int | None = None) -> None:
        """A given port must be free; without one it is 8086 or the next free one."""
        self._listener = _bind(port)
        self.port: int = self._listener.getsockname()[1]
        self.logs: list[ProcessLog] = []
        self.strangers = 0  # connections that spoke another protocol
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._waker = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._open: dict[socket.socket, tuple[ProcessLog, bytearray]] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name="capture-server", daemon=True)
        self._thread.start()

    @property
    def connected(self) -> int:
        """Connections open now."""
        return len(self._open)

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Until every client has closed; False when some still have not."""
        deadline = time.monotonic() + timeout_s
        # A client that just ended may still wait in the listen queue.
        time.sleep(0.02)
        while self._open and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self._open

    def stop(self) -> list[ProcessLog]:
        """Stop listening, take what is already in the sockets, and return the logs."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
        self._thread.join(timeout=10.0)
        for sock in (self._listener, self._wake, self._waker, *self._open):
            sock.close()
        self._selector.close()
        return self.logs

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
        log = ProcessLog()
        self.logs.append(log)
        self._open[connection] = (log, bytearray())
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, connection: socket.socket) -> None:
        log, buffer = self._open[connection]
        try:
            data = connection.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:  # reset: the process was killed with data unread on its side
            data = b""
        if data:
            buffer += data
            try:
                for kind, payload in frames(buffer):
                    log.frame(kind, payload)
                return
            except BadFileError:
                self.strangers += 1
        self._selector.unregister(connection)
        del self._open[connection]
        connection.close()


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
