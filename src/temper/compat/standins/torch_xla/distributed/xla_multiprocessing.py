"""torch_xla.distributed.xla_multiprocessing (usually ``xmp``): one process is all there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temper.compat.missing import getattr_for
from temper.errors import UsageError

__all__ = ["spawn"]


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None:
    """Runs ``fn(0, *args)`` in this process."""
    if nprocs not in (None, 1):
        raise UsageError(f"{nprocs} processes need {nprocs} chips; Temper models a single chip")
    fn(0, *args)


__getattr__ = getattr_for(__name__)
