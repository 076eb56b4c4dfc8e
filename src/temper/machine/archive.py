"""Opening a machine by its path: this one, a directory, or a captured archive, read safely.

Reading keeps an archive in memory, so that nothing in a stranger's file is ever written to disk.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from temper.errors import BadFileError, UsageError
from temper.machine.machine import (
    FACTS_FILE,
    MAX_FILE_BYTES,
    DirectoryMachine,
    LiveMachine,
    Machine,
    MemoryMachine,
)

_MAX_ARCHIVE_BYTES = 64 << 20
_MAX_MEMBERS = 20_000


def open_machine(root: str | None) -> Machine:
    """The live machine, a directory, or an archive made by ``--capture``."""
    if root is None:
        return LiveMachine()
    path = Path(root)
    if path.is_dir():
        return DirectoryMachine(path)
    if path.is_file():
        return read_archive(path)
    raise UsageError(f"no directory or archive at {root}", try_="temper doctor --capture out.tar")


def read_archive(path: Path) -> MemoryMachine:
    """Files of a capture; links, devices, escaping names and oversized members are refused."""

    def bad(what: str) -> BadFileError:
        return BadFileError(f"{path.name}: {what}", needs="a tar made by 'temper doctor --capture'")

    if path.stat().st_size > _MAX_ARCHIVE_BYTES:
        raise bad(f"larger than {_MAX_ARCHIVE_BYTES >> 20} MiB")
    files: dict[str, bytes] = {}
    try:
        # "r:" accepts no compression, so a small file cannot unpack into a large one.
        with tarfile.open(path, "r:") as archive:
            for count, member in enumerate(archive):
                if count >= _MAX_MEMBERS:
                    raise bad(f"more than {_MAX_MEMBERS} members")
                if member.isdir():
                    continue
                parts = member.name.split("/")
                if not member.isreg() or member.issparse():
                    raise bad(f"{member.name[:80]!r} is no plain file (links are not followed)")
                if member.name.startswith("/") or ".." in parts or "\0" in member.name:
                    raise bad(f"{member.name[:80]!r} leads out of the archive")
                if member.size > MAX_FILE_BYTES:
                    raise bad(f"{member.name[:80]!r} is larger than {MAX_FILE_BYTES >> 20} MiB")
                content = archive.extractfile(member)
                if content is not None:
                    files["/".join(part for part in parts if part != ".")] = content.read()
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise bad(f"not a plain tar archive ({error})") from None
    if FACTS_FILE.lstrip("/") not in files:
        raise bad("no capture.json in it")
    return MemoryMachine(files, path.name)
