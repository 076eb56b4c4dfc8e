"""A configuration object of another stack: its settings as attributes, wrong names an error."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, ClassVar

from temper.compat.missing import note
from temper.errors import UsageError


class Settings:
    """Subclasses name the package and its settings; one without effect here says so when set."""

    package: ClassVar[str]
    with_effect: ClassVar[Mapping[str, Any]]
    without_effect: ClassVar[Mapping[str, Any]]

    def __init__(self, **settings: Any) -> None:
        for name, value in {**self.without_effect, **self.with_effect}.items():
            object.__setattr__(self, name, value)
        for name, value in settings.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        known = {**self.without_effect, **self.with_effect}
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UsageError(
                f"{self.package}'s CompilerConfig has no setting {name!r}",
                allowed=sorted(known), try_=near or None,
            )  # fmt: skip
        if name in self.without_effect and value != self.without_effect[name]:
            said = f"CompilerConfig.{name} has no effect on the virtual chip"
            note(f"{self.package}.{name}", said)
        object.__setattr__(self, name, value)
