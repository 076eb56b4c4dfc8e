"""Capturing a machine into an archive without names or serial numbers.

A capture holds exactly the files that the checks read. It is a plain tar of small text files;
reading keeps it in memory, so that nothing in a stranger's archive is ever written to disk.
"""

from __future__ import annotations

import io
import json
import os
import re
import socket
import tarfile
from pathlib import Path
from typing import Any

from temper.doctor.examination import run
from temper.doctor.registry import Examined
from temper.files import replacing
from temper.machine import telemetry
from temper.machine.commands import CommandOutput
from temper.machine.facts import HostFacts
from temper.machine.machine import (
    FACTS_FILE,
    LATER_SUFFIX,
    MAX_FILE_BYTES,
    Machine,
)

_REMOVED = "removed"
_UPI_MASK = 0xFFFFF << 36  # the board type within a board id; the rest is the serial number
_SECRET_KEYS = re.compile(r"hostname|user|cmdline|serial|asic_id|coords", re.I)
_MAC = re.compile(r"\b(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}\b")
_IPV4 = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
_HOME = re.compile(r"/(home|Users)/[^/\s:\"']+")


class ReadRecorder(Machine):
    """Passes reads through to another machine and remembers what was there."""

    def __init__(self, inner: Machine) -> None:
        self.inner = inner
        self.name = inner.name
        self.files: dict[str, str] = {}
        self.rights: dict[str, str] = {}
        self.statuses: dict[str, str] = {}

    def text(self, path: str) -> str | None:
        return self._keep(path, self.inner.text(path))

    def text_later(self, path: str, changed_from: str) -> str | None:
        return self._keep(path + LATER_SUFFIX, self.inner.text_later(path, changed_from))

    def target(self, path: str) -> str:
        return self._keep(path, self.inner.target(path) or None) or ""

    def listing(self, path: str) -> list[str]:
        return self.inner.listing(path)

    def exists(self, path: str) -> bool:
        there = self.inner.exists(path)
        if there and not self.inner.listing(path):
            self._keep(path, self.inner.text(path) or "")
        return there

    def access(self, path: str) -> str | None:
        rights = self.inner.access(path)
        if rights is not None:
            self.rights[path] = rights
            self.files.setdefault(path, "")
        return rights

    def command(self, name: str) -> CommandOutput:
        output = self.inner.command(name)
        if output.status == "ok":
            self.files[f"/commands/{name}"] = output.text
        else:
            self.statuses[name] = output.status
        return output

    @property
    def facts(self) -> HostFacts:
        return self.inner.facts

    def _keep(self, path: str, text: str | None) -> str | None:
        if text is not None:
            self.files.setdefault(path, text)
        return text


def capture(machine: Machine, out: Path) -> int:
    """Write what all checks read, scrubbed, as a tar; returns the number of files."""
    recorder = ReadRecorder(machine)
    context = Examined(recorder)
    run(context)
    telemetry.read(recorder, context.cards)
    scrub = Scrubber(machine.facts)
    kept = {
        path: cleaned
        for path, text in recorder.files.items()
        if (cleaned := scrub.file(path, text)) is not None
    }
    facts = {
        **machine.facts.as_dict(),
        "format": 1,
        "home": scrub.text(machine.facts.home),
        "environment": {k: scrub.text(v) for k, v in machine.facts.environment.items()},
        "existing_paths": [scrub.text(path) for path in machine.facts.existing_paths],
        "access": recorder.rights,
        "commands": recorder.statuses,
    }
    kept[FACTS_FILE] = json.dumps(facts, indent=1)
    with (
        replacing(out) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for path in sorted(kept):
            content = kept[path].encode()[:MAX_FILE_BYTES]
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size = len(content)
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(content))
    return len(kept)


class Scrubber:
    """Removes what identifies a person, a host or one board; keeps what a check needs."""

    def __init__(self, facts: HostFacts) -> None:
        names = {socket.gethostname(), socket.gethostname().split(".")[0]}
        names |= {os.path.basename(facts.home), os.environ.get("USER", "")}
        # Names too short or too common would eat words of the kernel.
        common = {"root", "localhost", "linux", "ubuntu", "debian", "user", "tenstorrent"}
        self._names = sorted((n for n in names - common if len(n) >= 3), key=len, reverse=True)

    def text(self, text: str) -> str:
        text = _HOME.sub(r"/\1/user", text)
        for name in self._names:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", _REMOVED, text)
        return _IPV4.sub("0.0.0.0", _MAC.sub("00:00:00:00:00:00", text))

    def file(self, path: str, text: str) -> str | None:
        """The file's scrubbed text; None drops the file."""
        name = path.rsplit("/", 1)[-1]
        if re.fullmatch(r"/proc/\d+/fd/\d+", path):
            return text if text.startswith("/dev/tenstorrent/") else None
        if name == "tt_serial":
            return _board_type_only(text)
        if name == "tt_asic_id":
            return None
        if path == "/proc/mounts":
            return _lines(text, lambda line: " hugetlbfs " in line)
        if path.startswith("/proc/net/tcp"):
            return _listeners(text)
        if path == "/commands/dmesg":
            log = _lines(text, lambda line: "tenstorrent" in line or "AER" in line)
            return self.text(log)
        if path == "/commands/tt-smi":
            return self._snapshot(text)
        if path.startswith("/sys/"):
            # Kernel numbers; version texts such as 18.3.0.0 look like addresses.
            return _MAC.sub("00:00:00:00:00:00", text)
        return self.text(text)

    def _snapshot(self, text: str) -> str | None:
        start, end = text.find("{"), text.rfind("}")
        try:
            data = json.loads(text[start : end + 1])
        except (ValueError, RecursionError):
            return None
        return json.dumps(_without_secrets(data), indent=1)


def _without_secrets(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _without_secrets(v, str(k)) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_secrets(v, key) for v in value]
    if value is None or isinstance(value, bool):
        return value
    if key.lower() in ("board_id", "board_id_high"):
        return _board_type_only(str(value), high_word=key.lower().endswith("high"))
    if _SECRET_KEYS.search(key) or key.lower() == "board_id_low":
        return _REMOVED
    return value


def _board_type_only(text: str, *, high_word: bool = False) -> str:
    try:
        number = int(text, 16)
    except ValueError:
        return _REMOVED
    return f"{number & (_UPI_MASK >> 32 if high_word else _UPI_MASK):x}"


def _lines(text: str, keep: Any) -> str:
    return "\n".join(line for line in text.splitlines() if keep(line))


def _listeners(text: str) -> str:
    """Only that somebody listens on a port, without any address."""
    result = ["sl local_address rem_address st"]
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 3 and fields[3] == "0A":
            result.append(f"0: 00000000:{fields[1].rsplit(':', 1)[-1]} 00000000:0000 0A")
    return "\n".join(result)
