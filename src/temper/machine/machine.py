"""Reading a machine: the live one, a captured tree, or an archive, all through one interface.

Paths are those of the examined machine (``/sys/...``). Nothing is ever written, nothing outside
the root is followed, and every read is bounded, since a captured tree may come from a stranger.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from temper.machine.commands import CommandOutput, run_known
from temper.machine.facts import HostFacts

MAX_FILE_BYTES = 1 << 20
MAX_ENTRIES = 8192
FACTS_FILE = "/capture.json"
# A second reading of a changing file (the heartbeat) is stored beside the first.
LATER_SUFFIX = ".later"


class Machine:
    """The interface that checks use; subclasses say where the bytes come from."""

    name = "machine"
    live = False

    def text(self, path: str) -> str | None:
        """The file's text without surrounding blanks; None when missing or unreadable."""
        raw = self._bytes(path)
        return None if raw is None else _clean(raw)

    def text_later(self, path: str, changed_from: str) -> str | None:
        """A later reading of a file that should be changing; None when there is none."""
        return self.text(path + LATER_SUFFIX)

    def number(self, path: str) -> int | None:
        """A decimal or 0x number in a file; None for anything else, e.g. ``N/A``."""
        return as_number(self.text(path))

    def target(self, path: str) -> str:
        """Where a symbolic link points; a captured tree stores that text as a plain file."""
        return self.text(path) or ""

    def listing(self, path: str) -> list[str]:
        """Sorted names in a directory; empty when there is none."""
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        raise NotImplementedError

    def access(self, path: str) -> str | None:
        """``"rw"``, ``"r"``, ``""`` for a file that is there; None when it is missing."""
        if path in self.facts.access:
            return self.facts.access[path]
        return "rw" if self.exists(path) else None

    def command(self, name: str) -> CommandOutput:
        """Recorded output of ``tt-smi`` or ``dmesg``."""
        text = self.text(f"/commands/{name}")
        if text is not None:
            return CommandOutput("ok", text)
        return CommandOutput(self.facts.commands.get(name, "absent"))

    def forget(self, name: str) -> None:
        """Run a command anew when it is next asked for; a capture has only one output."""

    @property
    def facts(self) -> HostFacts:
        """Python, packages, environment: what is not a file of the kernel."""
        cached: HostFacts | None = getattr(self, "_facts", None)
        if cached is None:
            cached = HostFacts.from_json(self.text(FACTS_FILE) or "")
            self._facts = cached
        return cached

    def _bytes(self, path: str) -> bytes | None:
        raise NotImplementedError


class DirectoryMachine(Machine):
    """A tree on disk. Links that leave the tree read as missing."""

    def __init__(self, root: str | Path) -> None:
        self.root = os.path.realpath(root)
        self.name = str(root)

    def _locate(self, path: str) -> str | None:
        found = os.path.realpath(os.path.join(self.root, path.lstrip("/")))
        inside = self.root == "/" or found == self.root or found.startswith(self.root + os.sep)
        return found if inside else None

    def _bytes(self, path: str) -> bytes | None:
        found = self._locate(path)
        if found is None:
            return None
        try:
            # A pipe or device in a hostile tree would block or act on being opened.
            if not stat.S_ISREG(os.stat(found).st_mode):
                return None
            with open(found, "rb") as file:  # buffered: /proc hands out a page at a time
                return file.read(MAX_FILE_BYTES)
        except (OSError, ValueError):
            return None

    def target(self, path: str) -> str:
        parent = self._locate(os.path.dirname(path))
        if parent is None:
            return ""
        try:
            return os.readlink(os.path.join(parent, os.path.basename(path)))
        except OSError:
            return self.text(path) or ""

    def listing(self, path: str) -> list[str]:
        found = self._locate(path)
        if found is None:
            return []
        names: list[str] = []
        try:
            with os.scandir(found) as entries:
                for entry in entries:
                    names.append(entry.name)
                    if len(names) >= MAX_ENTRIES:
                        break
        except OSError:
            return []
        return sorted(names)

    def exists(self, path: str) -> bool:
        found = self._locate(path)
        return found is not None and os.path.exists(found)


class LiveMachine(DirectoryMachine):
    """The machine this process runs on, as an ordinary user sees it."""

    live = True

    def __init__(self) -> None:
        super().__init__("/")
        self.name = "this machine"
        self._outputs: dict[str, CommandOutput] = {}

    @property
    def facts(self) -> HostFacts:
        cached: HostFacts | None = getattr(self, "_facts", None)
        if cached is None:
            cached = HostFacts.of_this_process()
            self._facts = cached
        return cached

    def access(self, path: str) -> str | None:
        if not os.path.exists(path):
            return None
        return ("r" if os.access(path, os.R_OK) else "") + ("w" if os.access(path, os.W_OK) else "")

    def text_later(self, path: str, changed_from: str) -> str | None:
        """Wait until the file changes, at most a second."""
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            time.sleep(0.05)
            now = self.text(path)
            if now != changed_from:
                return now
        return self.text(path)

    def command(self, name: str) -> CommandOutput:
        if name not in self._outputs:
            self._outputs[name] = run_known(name)
        return self._outputs[name]

    def forget(self, name: str) -> None:
        self._outputs.pop(name, None)


class MemoryMachine(Machine):
    """A tree held in memory: an archive that was read, or a test."""

    def __init__(self, files: Mapping[str, bytes], name: str = "capture") -> None:
        self.files = {"/" + path.lstrip("/"): content for path, content in files.items()}
        self.name = name
        self._children: dict[str, set[str]] = {}
        for path in self.files:
            parts = path.strip("/").split("/")
            for depth, part in enumerate(parts):
                self._children.setdefault("/" + "/".join(parts[:depth]), set()).add(part)

    def _bytes(self, path: str) -> bytes | None:
        content = self.files.get(path)
        return None if content is None else content[:MAX_FILE_BYTES]

    def listing(self, path: str) -> list[str]:
        return sorted(self._children.get(path.rstrip("/") or "/", ()))

    def exists(self, path: str) -> bool:
        return path in self.files or path.rstrip("/") in self._children


def as_number(text: str | None) -> int | None:
    """``"42"``, ``"-1"`` or ``"0x1e52"`` as an int; None for anything else."""
    if not text or len(text) > 40:
        return None
    try:
        return int(text, 16) if text.lower().startswith("0x") else int(text)
    except ValueError:
        return None


def printable(text: str) -> str:
    """Without control characters: a stranger's capture must not steer the terminal."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", " ", text)


def _clean(raw: bytes) -> str:
    return printable(raw.decode("utf-8", "replace")).strip()
