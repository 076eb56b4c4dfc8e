"""Files written beside and then renamed, so that a reader never sees half of one."""

from __future__ import annotations

import contextlib
import ctypes
import difflib
import glob
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from temper.errors import TemperError, UsageError

# How the names of files end that are still being written, or that a killed process left.
UNFINISHED = ".part"


def _beside(path: Path) -> Path:
    """A name that no other thread or process writes, in the same folder."""
    return path.with_name(f".{path.name}.{threading.get_ident()}.{os.getpid()}{UNFINISHED}")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of ``path`` when the block ends well."""
    with replacing_path(path) as beside, beside.open("wb", buffering=1 << 20) as file:
        yield file


@contextlib.contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """A path for those who open the file themselves; what is there when the block ends well takes
    the place of ``path``."""
    beside = _beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield beside
        os.replace(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}",
            try_="another output path, or free space on that disk",
        ) from error
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode("utf-8", "surrogateescape"))


def same_file_at(source: Path, target: Path) -> None:
    """A second name for a file: a link where the disk can, a copy where it cannot."""
    beside = _beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, beside)
        except OSError:
            shutil.copyfile(source, beside)
        os.replace(beside, target)
        with contextlib.suppress(OSError):
            beside.unlink()  # renaming one link onto another of the same file leaves both
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error


@contextlib.contextmanager
def replacing_folder(path: Path, ours: Callable[[str], bool]) -> Iterator[Path]:
    """A folder that takes the place of ``path`` as a whole when the block ends well.

    Where ``path`` holds anything else than files that are ``ours`` by name, those stay: the new
    files then replace the old ones one by one, all written before the first is replaced.
    """
    path = path.absolute()
    _sweep(path)
    beside = _beside(path)
    try:
        beside.mkdir(parents=True)
        yield beside
        if path.is_dir() and not all(ours(entry.name) for entry in path.iterdir()):
            _merge(beside, path)
        elif not path.exists() or not _exchange(beside, path):
            if path.exists():
                shutil.rmtree(path)
            os.rename(beside, path)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}",
            try_="another output path, or free space on that disk",
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _sweep(path: Path) -> None:
    """Take away what a killed process left of a folder that it was writing."""
    for old in path.parent.glob(f".{glob.escape(path.name)}.*{UNFINISHED}"):
        pid = old.name.split(".")[-2]
        if pid.isdigit() and int(pid) != os.getpid() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, two: Path) -> bool:
    """Swap two folders in one step, where the system can."""
    try:
        swap = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(swap(here, os.fsencode(one), here, os.fsencode(two), exchange) == 0)


def _merge(source: Path, target: Path) -> None:
    for entry in sorted(source.iterdir()):
        there = target / entry.name
        if entry.is_dir() and there.is_dir():
            _merge(entry, there)
        else:
            os.replace(entry, there)


def check_writable(directory: Path) -> list[Path]:
    """Find out before the command has run for hours; the folders that were made, deepest first."""
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".temper-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"cannot write to {directory}: {error.strerror or error}",
            try_="a directory that you may write to",
        ) from error
    return made


def remove_empty(made: list[Path]) -> None:
    """Take back folders that `check_writable` made and nobody used."""
    with contextlib.suppress(OSError):
        for path in made:
            path.rmdir()


@contextlib.contextmanager
def only_one(path: Path, busy: TemperError) -> Iterator[None]:
    """A lock file that is held while the block runs; ``busy`` is raised where another holds it.

    The system lets go of it after a crash, so that a leftover file locks nobody out.
    """
    try:
        file = path.open("w")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it may have removed the file between our opening and our locking.
            if os.stat(path).st_ino != os.fstat(file.fileno()).st_ino:
                raise BlockingIOError
        except ImportError:
            pass  # not a POSIX system
        except OSError:
            raise busy from None
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)


def nearest_files(path: Path) -> list[str]:
    """Up to two files beside where ``path`` would be, whose names look like it."""
    folder = path.parent
    try:
        stems = [entry.stem for entry in folder.iterdir() if entry.suffix == path.suffix]
    except OSError:
        return []
    near = difflib.get_close_matches(path.stem, stems, n=2)
    return [str(folder / (stem + path.suffix)) for stem in near]
