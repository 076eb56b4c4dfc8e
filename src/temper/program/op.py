"""One device operation of a program, and where in the user's source it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from temper.program.ops import KINDS, OpKind


@dataclass(frozen=True, slots=True)
class Source:
    """The user's line that made an op: module path in the model, file and line."""

    module: str = ""
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Op:
    """A device operation: values by name, attributes as JSON."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    source: Source = Source()

    @property
    def info(self) -> OpKind:
        return KINDS[self.kind]

    def attr(self, name: str) -> Any:
        """The attribute, or its default from the op table."""
        return self.attrs[name] if name in self.attrs else self.info.attrs[name]

    def with_attrs(self, **changes: Any) -> Op:
        return replace(self, attrs={**self.attrs, **changes})
