"""The capture: what the server received, on disk as it came, until the run folder is whole.

A capture is a folder with ``about.json`` and a file of frames for each process. Bytes are handed
to the system as they arrive, so a killed profiler loses nothing that it had received; the next one
finds the folder, sees that nobody holds its lock, and can finish the profile.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from temper.errors import BadFileError, TemperError, UsageError
from temper.files import only_one, write_text
from temper.record.events import SIZE
from temper.record.log import ProcessLog
from temper.record.wire import EVENTS_FRAME, HEADER, frames

PREFIX = ".capture-"
_ABOUT, _LOCK = "about.json", "lock"
_CHUNK_BYTES = 1 << 22


class Capture:
    """A folder that a server writes to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._count = 0
        with _told(directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    @classmethod
    def inside(cls, folder: Path) -> Capture:
        """A capture of this process inside the run folder that it is for."""
        return cls(folder / f"{PREFIX}{os.getpid()}")

    def describe(self, about: Mapping[str, Any]) -> None:
        """What finishing the profile needs to know: the command, when it began."""
        write_text(self.directory / _ABOUT, json.dumps(about))

    def open(self) -> BinaryIO:
        """A new file for the frames of one process; nothing is kept back in this process."""
        self._count += 1
        path = self.directory / f"process_{self._count}.frames"
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", 0)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """While it is being written; the system lets go when this process ends in any way."""
        busy = UsageError(f"{self.directory.parent} is being written by another profiler")
        with only_one(self.directory / _LOCK, busy):
            yield

    def about(self) -> dict[str, Any]:
        """As described; empty when that is lost."""
        try:
            found = json.loads((self.directory / _ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def logs(self) -> list[ProcessLog]:
        """The log of each process, in the order in which they connected."""
        paths = self.directory.glob("process_*.frames")
        return [read_log(path) for path in sorted(paths, key=lambda p: (len(p.name), p.name))]

    def remove(self) -> None:
        """Once the run folder holds everything."""
        shutil.rmtree(self.directory, ignore_errors=True)


def read_log(path: Path) -> ProcessLog:
    """A process's log from its file: whole frames up to the first that makes no sense."""
    log, rest = ProcessLog(), bytearray()
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK_BYTES):
                rest += data
                for kind, payload in frames(rest):
                    log.frame(kind, payload)
        # Of a torn last frame whole events can be told, a message cannot.
        if len(rest) > HEADER.size and HEADER.unpack_from(rest)[1] == EVENTS_FRAME:
            log.events(bytes(rest[HEADER.size : len(rest) - (len(rest) - HEADER.size) % SIZE]))
    except (BadFileError, OSError):
        log.damaged += 1
    return log


def unfinished(folder: Path) -> list[Capture]:
    """Captures inside a folder whose profiler ended before it had written them."""
    found = []
    for path in sorted(folder.glob(f"{PREFIX}*")):
        if not path.is_dir() or not any(path.glob("process_*.frames")):
            continue
        capture = Capture(path)
        try:
            with capture.held():
                found.append(capture)
        except TemperError:
            continue
    return found


@contextlib.contextmanager
def _told(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {directory}: {error.strerror or error}") from error
