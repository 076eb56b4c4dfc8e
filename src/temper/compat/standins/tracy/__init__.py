"""tracy.signpost: marks a moment in the profile."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.frontdoor.session import signpost as _signpost

__all__ = ["signpost"]


def signpost(header: str, message: str | None = None) -> None:
    """A named moment; the message is added to the name."""
    _signpost(f"{header}: {message}" if message else header)


__getattr__ = getattr_for(__name__)
