"""torch_xla.debug.profiler (usually ``xp``): its named spans become marks in Temper's profile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from temper.compat.missing import getattr_for, note
from temper.frontdoor.session import signpost

__all__ = ["StepTrace", "Trace", "start_server", "trace"]


@contextlib.contextmanager
def Trace(name: str, **_: Any) -> Iterator[None]:
    """A mark where the span begins and one where it ends."""
    signpost(name)
    yield
    signpost(f"{name} ends")


StepTrace = Trace


def start_server(port: int, **_: Any) -> None:
    note("xp.start_server", 'no profiler server is started; use temper profile "command"')


def trace(*_: Any, **__: Any) -> None:
    note("xp.trace", 'nothing is traced by a server; use temper profile "command"')


__getattr__ = getattr_for(__name__)
