"""The worker process: frames in, frames out, in the Python that has ttnn.

    python worker.py SOCKET-FD STATUS-FILE

Nothing of Temper is imported. The status file holds the step that runs, so that whoever started
this process can say where it died.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import sys
from typing import Any

import frames  # type: ignore[import-not-found]
import serving  # type: ignore[import-not-found]


def main() -> None:
    """Serve until the other side goes away."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    with open(sys.argv[2], "r+b") as file:
        status = mmap.mmap(file.fileno(), 0)

    def note(step: dict[str, Any]) -> None:
        told = {"label": step["label"], "kind": step["kind"], "source": step["source"]}
        text = json.dumps(told).encode()[: len(status) - 1]
        status[: len(text) + 1] = text + b"\0"

    def host_op(step: dict[str, Any], operands: list[Any]) -> list[Any]:
        frames.send(channel, {"host_op": step["ops"][-1]}, operands)
        _, results = frames.receive(channel)
        return list(results)

    server = serving.Server(note, host_op)
    while True:
        try:
            message, arrays = frames.receive(channel)
            status[:1] = b"\0"
            reply, made = server.handle(message, arrays)
            status[:1] = b"\0"
            frames.send(channel, reply, made)
        except frames.Closed:
            os._exit(0)  # a device that hangs must not keep the process


if __name__ == "__main__":
    main()
