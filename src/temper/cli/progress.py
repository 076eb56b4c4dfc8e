"""What long work says while it runs: a line that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from temper.cli.output import console

# Elsewhere than on a terminal, steps that come faster than this are not told one by one.
_PLAIN_SECONDS = 10.0


def quiet_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--quiet`` as every long command has it."""
    return click.option("-q", "--quiet", is_flag=True, help="Say nothing while it runs.")(function)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C until the block ends, so that what was found is kept and shown."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Said:
    """Where a command tells how far it is: on standard error, never beside its result."""

    def __init__(self, name: str, update: Callable[[str], None], line: Callable[[str], None]):
        self._name, self._update, self._line = name, update, line

    def now(self, text: str) -> None:
        """What is being done now."""
        self._update(text)

    def line(self, text: str) -> None:
        """Something that is there and stays."""
        self._line(f"{self._name}: {text}")


@contextlib.contextmanager
def progress(name: str, quiet: bool = False) -> Iterator[Said]:
    """Tell about long work until the block ends; SIGTERM ends it as Ctrl-C does."""
    with terminable(), _told(name, quiet) as said:
        yield said


@contextlib.contextmanager
def _told(name: str, quiet: bool) -> Iterator[Said]:
    if quiet:
        yield Said(name, lambda text: None, lambda text: None)
        return
    if sys.stderr.isatty():
        errors = console(stderr=True)
        with errors.status("loading") as status:
            yield Said(name, status.update, errors.print)
        return
    last = time.monotonic()

    def plain(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _PLAIN_SECONDS:
            last = time.monotonic()
            click.echo(f"{name}: {text}", err=True)

    yield Said(name, plain, lambda text: click.echo(text, err=True))
