"""A configuration object of another stack: its settings as attributes, wrong names an error."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from temper.compat.missing import note
from temper.errors import UsageError


class Settings:
    """Subclasses name the package and its settings; one without effect here says so when set.

    ``silent`` is for settings that only ask for more checks.
    """

    package: ClassVar[str]
    what: ClassVar[str] = "CompilerConfig"
    silent: ClassVar[bool] = False
    unremarked: ClassVar[Sequence[str]] = ()
    with_effect: ClassVar[Mapping[str, Any]]
    without_effect: ClassVar[Mapping[str, Any]]

    def __init__(self, **settings: Any) -> None:
        for name, value in {**self.without_effect, **self.with_effect}.items():
            object.__setattr__(self, name, copy.copy(value))  # scripts add to lists and sets
        for name, value in settings.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        known = {**self.without_effect, **self.with_effect}
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UsageError(
                f"{self.package}'s {self.what} has no setting {name!r}",
                try_=near or None, allowed=[
                    *sorted(self.with_effect), f"{len(self.without_effect)} without effect here",
                ],
            )  # fmt: skip
        remarked = not self.silent and name not in self.unremarked
        if remarked and name in self.without_effect and value != self.without_effect[name]:
            said = f"{self.what}.{name} has no effect on the virtual chip"
            note(f"{self.package}.{name}", said)
        object.__setattr__(self, name, value)
