"""Profiling from Python: ``with temper.profile("dir") as run`` and ``temper.signpost("x")``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from temper.errors import UsageError
from temper.files import check_writable
from temper.frontdoor.environment import start_from_environment
from temper.record import recorder as recording
from temper.record.log import ProcessLog
from temper.report.advice import Advice
from temper.report.advise_run import advise_run
from temper.report.html import embedded
from temper.report.writers import write_run
from temper.run.calls import WARM, choose_calls
from temper.run.logs import run_from_logs
from temper.run.opening import profile_of_run
from temper.run.records import OpRecord, Run

start_from_environment()

_open: list[Session] = []


class Session:
    """A profile that is being taken; after the block it answers like the finished run."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self._log = ProcessLog()
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        """The records so far; the final ones once the block has ended."""
        if self._run is not None:
            return self._run
        active = recording.ACTIVE
        if active is not None:
            active.flush()
        return self._snapshot()

    def top(self, count: int = 5) -> list[OpRecord]:
        """The ops that took the most device time in warm calls."""
        return self._warm.top(count)

    def advice(self) -> list[Advice]:
        """Changes worth making, best first, each with its modelled gain."""
        return advise_run(self._warm)

    @property
    def _warm(self) -> Run:
        return choose_calls(self.run, WARM)[0]

    def save(self, directory: str | os.PathLike[str] | None = None) -> Path:
        """Write the run folder, to the directory given now or at the start."""
        target = directory if directory is not None else self.directory
        if target is None:
            raise UsageError("no directory to save the profile to", try_='run.save("profiles/run")')
        return write_run(self.run, Path(target))

    def _repr_html_(self) -> str:
        """The report of the warm calls, as a notebook shows it."""
        return embedded(profile_of_run(self.run, "profile"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.run, name)

    def _snapshot(self) -> Run:
        return run_from_logs([self._log], source="temper.profile")

    def _finish(self) -> None:
        recording.deactivate(self._log)
        self._run = self._snapshot()


@contextlib.contextmanager
def profile(directory: str | os.PathLike[str] | None = None) -> Iterator[Session]:
    """Record everything that runs on the chip inside the block.

    With a directory, the run folder is written there when the block ends, also when it ends with
    an error. Without one the records stay in memory: ``run.top(5)``, ``run.save("dir")``.
    """
    if _open:
        where = _open[0].directory or "memory"
        raise UsageError(
            f"a profile is already being taken (into {where})",
            try_=["end it first", "temper.signpost() to mark parts of one profile"],
        )
    target = Path(directory) if directory is not None else None
    if target is not None:
        check_writable(target)
    session = Session(target)
    _open.append(session)
    recording.activate(session._log)
    try:
        yield session
    finally:
        _open.remove(session)
        session._finish()
        if target is not None:
            session.save()


def signpost(name: str) -> None:
    """Mark this moment in the profile; free when no profile is taken."""
    active = recording.ACTIVE
    if active is not None:
        active.mark(str(name))
