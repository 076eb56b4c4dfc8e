"""Temper's end of the worker: starts it, asks it, notices its death and says where it died."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from temper.targets.ttnn import frames
from temper.targets.ttnn.environment import Environment, TtnnError

# Longest silence of a worker while a request is under way; a card that hangs gives no sign.
_PATIENCE_S = float(os.environ.get("TEMPER_TTNN_TIMEOUT", "600"))
_STATUS_BYTES = 4096
_WORKER = Path(__file__).with_name("worker.py")

HostOp = Callable[[int, list[Any]], list[Any]]


class WorkerDied(TtnnError):
    """The worker process ended or fell silent while it had work."""


class Server(Protocol):
    """Whatever answers requests: a worker process, or ttnn in this one."""

    def ask(
        self, message: dict[str, Any], arrays: Sequence[Any] = (), host_op: HostOp | None = None
    ) -> tuple[dict[str, Any], list[Any]]: ...

    def close(self) -> None: ...


class Worker:
    """One worker process. A dead one is not revived here: whoever asked decides."""

    def __init__(self, environment: Environment) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        handle, self._status = tempfile.mkstemp(prefix="temper-ttnn-")
        os.truncate(handle, _STATUS_BYTES)
        os.close(handle)
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TT_METAL_HOME"))
        }
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        try:
            self._process = subprocess.Popen(
                [str(environment.python), str(_WORKER), str(theirs.fileno()), self._status],
                pass_fds=[theirs.fileno()],
                env={**kept, **environment.variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
            )
        except OSError as error:
            raise TtnnError(f"{environment.python} does not start: {error.strerror}") from None
        finally:
            theirs.close()
        ours.settimeout(_PATIENCE_S)
        self._channel = ours

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(
        self, message: dict[str, Any], arrays: Sequence[Any] = (), host_op: HostOp | None = None
    ) -> tuple[dict[str, Any], list[Any]]:
        """One request and its reply; ops of the host are run by ``host_op`` in between."""
        with self._lock:
            try:
                frames.send(self._channel, message, arrays)
                reply, made = frames.receive(self._channel)
                while "host_op" in reply:
                    assert host_op is not None
                    frames.send(self._channel, {}, host_op(reply["host_op"], made))
                    reply, made = frames.receive(self._channel)
            except (frames.Closed, frames.BadFrame, TimeoutError) as error:
                raise self._death(message, error) from None
        return reply, made

    def _death(self, message: dict[str, Any], error: Exception) -> WorkerDied:
        silent = isinstance(error, TimeoutError)
        self._stop()
        at = self._running()
        where = f"while {at['kind']} of {at['label']} ran" if at else f"during {message['do']!r}"
        code = self._process.returncode
        how = f"said nothing for {_PATIENCE_S:g} s" if silent else f"ended with code {code}"
        self._errors.seek(0)
        lines = [x for x in self._errors.read().decode(errors="replace").splitlines() if x.strip()]
        return WorkerDied(
            f"the ttnn worker {how} {where}",
            source=(at or {}).get("source") or None,
            cause=lines[-1][:300] if lines else None,
            try_="the call again: a new worker is started for it",
        )

    def _running(self) -> dict[str, str] | None:
        text = Path(self._status).read_bytes().split(b"\0")[0]
        with contextlib.suppress(ValueError):
            found = json.loads(text)
            return found if isinstance(found, dict) else None
        return None

    def _stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._channel.close()
        self._stop()
        with contextlib.suppress(OSError):
            os.unlink(self._status)


class InProcess:
    """ttnn in this process: the same server without the frames."""

    def __init__(self) -> None:
        from temper.targets.ttnn.serving import Server as Serving

        self._host_op: HostOp | None = None
        self._server = Serving(lambda step: None, self._run_host_op)
        self._lock = threading.Lock()
        self.alive = True

    def _run_host_op(self, step: dict[str, Any], operands: list[Any]) -> list[Any]:
        assert self._host_op is not None
        return self._host_op(step["ops"][-1], operands)

    def ask(
        self, message: dict[str, Any], arrays: Sequence[Any] = (), host_op: HostOp | None = None
    ) -> tuple[dict[str, Any], list[Any]]:
        with self._lock:
            self._host_op = host_op
            return self._server.handle(message, arrays)

    def close(self) -> None:
        """The device goes with the process."""


def checked(reply: dict[str, Any]) -> dict[str, Any]:
    """The reply, or the refusal that it carries as an error that names op and source line."""
    if "error" not in reply:
        return reply
    step = reply.get("step")
    what = f"ttnn refused {step['kind']} of {step['label']}" if step else "ttnn failed"
    raise TtnnError(
        f"{what}: {reply['error']}",
        source=(step or {}).get("source") or None,
        try_=["temper legal MODEL --chip NAME lists every refusal", "target='virtual'"],
    )
