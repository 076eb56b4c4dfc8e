"""What a stand-in says about a name that it lacks, and about names that never existed."""

from __future__ import annotations

import dis
import importlib
import sys
from collections.abc import Callable
from typing import Any

from temper.compat.modules import submodules

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]
_told: set[str] = set()


def getattr_for(module: str, frames: int = 1) -> Callable[[str], Any]:
    """A module's ``__getattr__``: its modules when they are asked for, else what exists.

    ``frames`` is how far up the stack the asking code is.
    """

    def missing(name: str) -> Any:
        own = sys.modules[module]
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if f"{module}.{name}" in submodules(module.partition(".")[0]):
            return importlib.import_module(f"{module}.{name}")
        public = getattr(own, "__all__", None) or [
            item for item in vars(own) if not item.startswith("_")
        ]
        told = f"Temper's stand-in for {module} has no {name!r}; it has {', '.join(sorted(public))}"
        # Of an AttributeError "from x import y" keeps no text, so that one gets its own.
        frame = sys._getframe(frames)
        if 0 <= frame.f_lasti < len(frame.f_code.co_code) and (
            frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM
        ):
            raise ImportError(f"cannot import name {name!r} from {module!r}: {told}", name=module)
        raise AttributeError(told, name=name, obj=own)

    return missing


def note(key: str, text: str) -> None:
    """Says ``text`` on stderr the first time that ``key`` comes up."""
    if key not in _told:
        _told.add(key)
        print(f"temper: {text}", file=sys.stderr)


def forget_notes() -> None:
    """Say everything once more; for tests."""
    _told.clear()
