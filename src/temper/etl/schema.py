"""What a row is: named columns, how their text reads, and what a missing value stands for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from temper.errors import BadFileError, UsageError

KINDS = ("int", "float", "hex", "text")
ROLES = ("label", "dense", "category")


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``missing`` replaces an empty field before any operator sees it."""

    name: str
    kind: str = "int"
    role: str = "dense"
    missing: float = 0
    bits: int = 64  # 32: an integer that passes through unchanged is stored, and checked, as int32

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"column {self.name!r} has kind {self.kind!r}", allowed=KINDS)
        if self.role not in ROLES:
            raise UsageError(f"column {self.name!r} has role {self.role!r}", allowed=ROLES)
        if self.bits not in (32, 64):
            raise UsageError(f"column {self.name!r} has {self.bits} bits", allowed=["32", "64"])


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a file in the order in which text holds them."""

    name: str
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not names:
            raise UsageError(
                f"schema {self.name!r} " + (f"names {twice[0]!r} twice" if twice else "is empty")
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    def role(self, *roles: str) -> tuple[str, ...]:
        """Names of the columns that have one of these roles."""
        return tuple(column.name for column in self.columns if column.role in roles)

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "columns": [asdict(column) for column in self.columns]}


def schema_from_dict(value: Mapping[str, Any]) -> Schema:
    """The inverse of ``Schema.as_dict``; the form of a schema file."""
    try:
        columns: Iterable[Mapping[str, Any]] = value["columns"]
        return Schema(str(value.get("name", "custom")), tuple(Column(**item) for item in columns))
    except (KeyError, TypeError) as error:
        raise BadFileError(
            f"not a schema: {error}",
            needs='{"name": …, "columns": [{"name": …, "kind": …, "role": …}, …]}',
        ) from None


def load_schema(name: str) -> Schema:
    """A built-in schema by name, or one from a JSON file."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    path = Path(name)
    if not path.is_file():
        raise UsageError(
            f"no schema {name!r}", allowed=[*BUILT_IN, "the path of a JSON schema file"]
        )
    try:
        return schema_from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        raise BadFileError(f"{name} is not JSON: {error}") from None


# Criteo's click logs: a label, 13 counts and 26 categories as hexadecimal hashes; any may be empty.
CRITEO = Schema(
    "criteo",
    (
        Column("label", "int", "label", bits=32),
        *(Column(f"I{index}", "int", "dense") for index in range(1, 14)),
        *(Column(f"C{index}", "hex", "category") for index in range(1, 27)),
    ),
)

BUILT_IN: Mapping[str, Schema] = {"criteo": CRITEO}
