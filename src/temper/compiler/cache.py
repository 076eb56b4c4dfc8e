"""Compiled programs on disk: found again by key, safe against other writers and against damage.

An entry is a program archive without weights, named by its key, which it also carries. Files
appear by rename, so a reader sees a whole entry or none; whatever cannot be read, or was stored
under another key, is thrown away and compiled again.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from temper.errors import TemperError, UsageError
from temper.files import UNFINISHED
from temper.program import Program, archive

# Entries are a few hundred kilobytes; this holds some thousand models.
DEFAULT_LIMIT_BYTES = 1 << 30
# Eviction makes room for more than one entry, so that not every put has to evict.
_KEEP_SHARE = 0.8
# A part file this old was left by a process that died.
_STALE_SECONDS = 3600.0
_SUFFIX = ".temper"
_KEY = re.compile(r"[0-9a-f]{8,128}")
_OFF = frozenset({"0", "false", "no", "off"})


def enabled() -> bool:
    """Whether the environment leaves the cache on (``TEMPER_CACHE=0`` switches it off)."""
    return os.environ.get("TEMPER_CACHE", "1").strip().lower() not in _OFF


def default_folder() -> Path:
    """``TEMPER_CACHE_DIR``, or ``temper/programs`` in the user's cache folder."""
    given = os.environ.get("TEMPER_CACHE_DIR")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "temper" / "programs"


@dataclass
class Counts:
    """What the cache did in this process."""

    hits: int = 0
    misses: int = 0
    stored: int = 0
    discarded: int = 0
    evicted: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, name: str, amount: int = 1) -> None:
        with self.lock:
            setattr(self, name, getattr(self, name) + amount)

    def as_dict(self) -> dict[str, int]:
        return {name: value for name, value in vars(self).items() if name != "lock"}


@dataclass(frozen=True)
class PlacementCache:
    """One folder of entries, at most ``limit_bytes`` in all, the least recently used go first."""

    folder: Path
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    counts: Counts = field(default_factory=Counts)

    def path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise UsageError(f"{key!r} is no cache key", needs="8 to 128 hexadecimal digits")
        return self.folder / f"{key}{_SUFFIX}"

    def get(self, key: str) -> Program | None:
        """The program of that key, or None; a damaged entry is discarded with a note."""
        path = self.path(key)
        if not path.is_file():
            self.counts.add("misses")
            return None
        try:
            program, _ = archive.load(path, key=key)
        except (TemperError, OSError) as error:
            if path.exists():  # else another process evicted it just now
                self.counts.add("discarded")
                _remove(path)
                why = getattr(error, "what", None) or str(error)
                warnings.warn(f"damaged compile cache entry discarded: {why}", stacklevel=2)
            self.counts.add("misses")
            return None
        with contextlib.suppress(OSError):  # read-only: the order of use is lost, the entry good
            os.utime(path)
        self.counts.add("hits")
        return program

    def put(self, key: str, program: Program) -> bool:
        """Store a program; False, with a note, where the folder cannot be written."""
        path = self.path(key)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            archive.save(program, {}, path, key=key)
        except (TemperError, OSError, TypeError, ValueError) as error:  # or no JSON for it
            warnings.warn(f"compile cache not written: {error}", stacklevel=2)
            return False
        self.counts.add("stored")
        self._evict(keep=path)
        return True

    def clear(self) -> int:
        """Remove every entry; returns how many there were."""
        removed = [_remove(entry.path) for entry in self._entries()]
        return sum(removed)

    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self._entries())

    def _entries(self) -> Iterator[_Entry]:
        try:
            listed = list(os.scandir(self.folder))
        except OSError:
            return
        for item in listed:
            try:
                seen = item.stat()
            except OSError:
                continue  # gone since it was listed
            if item.name.endswith(_SUFFIX):
                yield _Entry(Path(item.path), seen.st_mtime, seen.st_size)
            elif item.name.endswith(UNFINISHED) and time.time() - seen.st_mtime > _STALE_SECONDS:
                _remove(Path(item.path))

    def _evict(self, keep: Path) -> None:
        entries = sorted(self._entries(), key=lambda entry: entry.used)
        total = sum(entry.size_bytes for entry in entries)
        if total <= self.limit_bytes:
            return
        for entry in entries:
            if total <= self.limit_bytes * _KEEP_SHARE:
                break
            if entry.path != keep and _remove(entry.path):
                total -= entry.size_bytes
                self.counts.add("evicted")


@dataclass(frozen=True)
class _Entry:
    path: Path
    used: float
    size_bytes: int


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


_caches: dict[tuple[Path, int], PlacementCache] = {}


def default_cache() -> PlacementCache:
    """The cache that the environment names; ``TEMPER_CACHE_LIMIT`` is its size in bytes."""
    given = os.environ.get("TEMPER_CACHE_LIMIT", "").strip()
    if given and not given.isdecimal():
        raise UsageError(f"TEMPER_CACHE_LIMIT={given!r} is no number of bytes")
    limit_bytes = int(given) if given else DEFAULT_LIMIT_BYTES
    folder = default_folder()
    return _caches.setdefault((folder, limit_bytes), PlacementCache(folder, limit_bytes))


def get(key: str) -> Program | None:
    """The cached program of that key; None if there is none or the cache is off."""
    return default_cache().get(key) if enabled() else None


def put(key: str, program: Program) -> bool:
    """Cache a program; False if it was not stored or the cache is off."""
    return default_cache().put(key, program) if enabled() else False
