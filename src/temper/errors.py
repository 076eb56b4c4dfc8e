"""The errors that users see: what happened, the arithmetic, what to try."""

from __future__ import annotations

import traceback
from collections.abc import Iterable

# Wide enough for the longest label in use, so that the second column lines up.
_LABEL_WIDTH = 7


class TemperError(Exception):
    """A user's mistake or a limit of the chip, told in one template and without a traceback.

    ``details`` are label/text pairs in the order given, e.g. ``needs="1 090 848 B"`` or
    ``try_=["batch <= 88", "optimization_level=1"]``; a trailing underscore is dropped and a list
    is joined with ", or ".
    """

    exit_code = 1

    def __init__(self, what: str, **details: str | Iterable[str] | None) -> None:
        self.what = what
        self.details = {
            label.rstrip("_"): text if isinstance(text, str) else ", or ".join(text)
            for label, text in details.items()
            if text
        }
        super().__init__(self._render())

    def _render(self) -> str:
        lines = [self.what]
        lines += [f"  {label:<{_LABEL_WIDTH}} {text}" for label, text in self.details.items()]
        return "\n".join(lines)


class UsageError(TemperError):
    """A wrong name, option or argument."""

    exit_code = 2


class CompileError(TemperError):
    """A model that cannot be compiled as asked."""


class OutOfMemoryError(TemperError):
    """A program that does not fit the chip's SRAM, DRAM or trace region."""


class BadFileError(TemperError):
    """A file that is missing, truncated, foreign, hostile or of a newer version."""

    exit_code = 2


def raised_at(error: BaseException) -> str:
    """The user's own file and line that an exception came by: the last outside of libraries."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not any(part in f.filename for part in _LIBRARIES)]
    if not own:
        return ""
    last = own[-1]
    return f"{last.filename}:{last.lineno}, in {last.name}"


_LIBRARIES = ("/site-packages/", "/dist-packages/", "/temper/", "<frozen", "/lib/python")
