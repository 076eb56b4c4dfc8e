"""Settings that a user keeps: temper.toml, or [tool.temper] of pyproject.toml, nearest first."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temper.errors import BadFileError, UsageError
from temper.options.parse import find, parse

NAMES = ("temper.toml", "pyproject.toml")
_TABLE = "[tool.temper]"
_read: dict[tuple[Path, int], dict[str, Any] | None] = {}


@dataclass(frozen=True)
class Settings:
    """Option values of one file; ``path`` is None where there is no file."""

    values: Mapping[str, Any]
    path: Path | None = None


def settings(start: Path | None = None) -> Settings:
    """The nearest settings file of the working folder and those above it, parsed and checked."""
    folder = (start or Path.cwd()).resolve()
    for place in (folder, *folder.parents):
        for name in NAMES:
            path = place / name
            values = _values(path)
            if values is not None:
                return Settings(values, path)
    return Settings({})


def _values(path: Path) -> dict[str, Any] | None:
    """What a file sets; None where it is not there or says nothing about Temper."""
    try:
        key = path, path.stat().st_mtime_ns
    except OSError:
        return None
    if key not in _read:
        _read[key] = _parsed(path)
    return _read[key]


def _parsed(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if path.name == "pyproject.toml":
            return None  # somebody else's file, and nothing in it is known to be ours
        raise BadFileError(f"cannot read the settings in {path}", found=str(error)) from None
    if path.name == "pyproject.toml" and _TABLE.rstrip("]") not in text:
        return None
    table: Any = _loads(text, path)
    if path.name == "pyproject.toml":
        table = table.get("tool", {}).get("temper")
        if table is None:
            return None
    if not isinstance(table, dict):
        raise BadFileError(f"{path}: {_TABLE} is no table", needs='lines such as chip = "p150"')
    found: dict[str, Any] = {}
    for name, value in table.items():
        try:
            option = find(name)
            found[option.name] = parse(option, value)
        except UsageError as error:
            raise UsageError(
                f"{path}: {error.what}",
                allowed=error.details.get("allowed"),
                try_=error.details.get("try"),
                see=error.details.get("see"),
            ) from None
    return found


def _loads(text: str, path: Path) -> dict[str, Any]:
    for name in ("tomllib", "tomli"):  # the standard library has it from Python 3.11 on
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        try:
            loaded: dict[str, Any] = module.loads(text)
        except module.TOMLDecodeError as error:
            raise BadFileError(f"{path} is no TOML", found=str(error)) from None
        return loaded
    raise UsageError(
        f"the settings in {path} need a TOML reader, which Python 3.10 does not have",
        try_=["pip install tomli", "Python 3.11 or newer", "options={...} instead"],
    )
