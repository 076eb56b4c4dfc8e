"""Folders that a run writes to: local ones, and those behind a URL that fsspec knows."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from temper.errors import TemperError, UsageError
from temper.files import check_writable, only_one, replacing_path

_LOCK = "_temper_etl.lock"


class Store(Protocol):
    """Files by their names below one folder; a file is there whole or not at all."""

    place: str

    def alone(self) -> AbstractContextManager[None]: ...
    def names(self) -> list[str]: ...
    def put(self, name: str, write: Callable[[Path], None]) -> None: ...
    def remove(self, name: str) -> None: ...
    def local(self, name: str) -> AbstractContextManager[Path]: ...


def open_store(folder: str | os.PathLike[str]) -> Store:
    """The folder of that path or URL."""
    return RemoteStore(str(folder)) if "://" in str(folder) else LocalStore(Path(folder))


class LocalStore:
    """A folder of this machine, or of a disk that a cluster shares."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = str(folder)

    def alone(self) -> AbstractContextManager[None]:
        """The folder for this run only; two runs into one folder would mix their parts."""
        check_writable(self.folder)
        busy = TemperError(
            f"another run writes to {self.folder}", try_=["wait for it", "another folder"]
        )
        return only_one(self.folder / _LOCK, busy)

    def names(self) -> list[str]:
        """Every file below the folder, leftovers included."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.folder).as_posix() for path in found)

    def put(self, name: str, write: Callable[[Path], None]) -> None:
        """What ``write`` leaves at the path that it is given, under its name once it is whole."""
        with replacing_path(self.folder / name) as beside:
            write(beside)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def local(self, name: str) -> AbstractContextManager[Path]:
        """The file as a path of this machine."""
        return nullcontext(self.folder / name)


class RemoteStore:
    """A folder behind a URL. Objects appear whole; no lock keeps two runs apart."""

    def __init__(self, url: str) -> None:
        self.place = url
        self._files, self._root = filesystem(url)

    def alone(self) -> AbstractContextManager[None]:
        """Nothing is locked: object stores have no locks. The docs say so."""
        return nullcontext()

    def names(self) -> list[str]:
        try:
            found = self._files.find(self._root)
        except FileNotFoundError:
            return []
        root = self._root.rstrip("/") + "/"
        return sorted(name.split(root, 1)[-1] for name in found)

    def put(self, name: str, write: Callable[[Path], None]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "file"
            write(path)
            self._files.makedirs(self._path(name).rsplit("/", 1)[0], exist_ok=True)
            self._files.put_file(str(path), self._path(name))

    def remove(self, name: str) -> None:
        self._files.rm_file(self._path(name))

    @contextmanager
    def local(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "file"
            self._files.get_file(self._path(name), str(path))
            yield path

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def filesystem(url: str) -> tuple[Any, str]:
    """The file system of a URL and the path within it."""
    try:
        from fsspec.core import url_to_fs

        files, path = url_to_fs(url)
    except ImportError as error:
        raise UsageError(
            f"{url} needs a package that is not installed: {error}",
            try_=["pip install fsspec", "the package of that store, such as s3fs or gcsfs"],
        ) from None
    except (ValueError, OSError) as error:
        raise UsageError(f"{url} cannot be opened: {error}") from None
    return files, str(path)


def read_json(store: Store, name: str) -> Any:
    """A small file of the folder as JSON."""
    with store.local(name) as path:
        return json.loads(path.read_text(encoding="utf-8"))
