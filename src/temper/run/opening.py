"""Opening whatever a person points at: a run folder, a profiler's folder, or an ops CSV."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from temper.errors import BadFileError
from temper.record.capture import unfinished
from temper.run import folder
from temper.run.calls import ALL, FIRST, WARM, between_marks, choose_calls, one_call
from temper.run.card_csv import read_ops_csv
from temper.run.records import Run
from temper.run.regions import Region, one_device, region_of
from temper.run.run_table import table_of_run
from temper.run.table import OpTable


@dataclass(frozen=True)
class Profile:
    """Ops in columns, and the run where its records are there: both of the chosen calls."""

    name: str
    table: OpTable
    run: Run | None = None
    calls: str = ALL  # which calls these are
    count: int = 0  # how many times the whole model was called in them; 0 when unknown
    whole: Run | None = None  # with every call

    def one_call(self) -> Profile:
        """One of the chosen calls; all of them where none stands for the others."""
        run = one_call(self.run) if self.run is not None and self.count > 1 else None
        if run is None:
            return self
        return replace(self, table=table_of_run(run), run=run, count=1)

    def chosen(self, calls: str) -> Profile:
        """The same profile with other calls of it."""
        if calls == self.calls:
            return self
        run = self.whole or self.run
        if run is None:
            return replace(self, table=_rows_of(self.table, calls), calls=calls)
        return profile_of_run(run, self.name, calls)


def profile_of_run(run: Run, name: str, calls: str = WARM) -> Profile:
    """A run's profile: of its warm calls, unless others are asked for."""
    part, count = choose_calls(run, calls)
    return Profile(name, table_of_run(part), part, calls, count, run)


def open_profile(
    path: Path, calls: str = ALL, region: Region | None = None, chip: str = ""
) -> Profile:
    """A run folder, a folder of tt-metal's profiler (the newest report in it), or a CSV.

    ``region`` is the part between signposts, everything without one; ``chip`` the card's, where a
    CSV does not say.
    """
    opened = _open(path, chip)
    if opened.run is None:
        table = one_device(opened.table)
        opened = replace(opened, table=table if region is None else region_of(table, region))
    elif region is not None and region.named:
        run = between_marks(opened.run, region.start, region.end)
        opened = profile_of_run(run, opened.name, ALL)
    return opened.chosen(calls)


def _rows_of(table: OpTable, calls: str) -> OpTable:
    """A card's CSV knows no calls, but which rows are const-eval."""
    once = table.text("const_eval").equals("true")
    if calls == FIRST or not once.any():
        return table.select(once) if calls == FIRST else table
    note = f"{int(once.sum())} const-eval ops are left out; '--calls all' counts them"
    return replace(table.select(~once), notes=(*table.notes, note))


# Where tt-metal's profiler puts its reports, seen from a folder above them.
_PLACES = ("", "reports/*/", "profiler/", "profiler/reports/*/", "generated/profiler/",
           "generated/profiler/reports/*/")  # fmt: skip


def _open(path: Path, chip: str) -> Profile:
    if not path.exists():
        raise BadFileError(f"{path} does not exist")
    if path.is_file():
        if path.name == folder.RUN_JSON:
            return _run(path.parent)
        return _csv(path, chip)
    if (path / folder.RUN_JSON).is_file():
        return _run(path)
    for place in _PLACES:
        found = list(path.glob(f"{place}ops_perf_results*.csv"))
        if found:
            return _csv(max(found, key=lambda p: p.stat().st_mtime), chip)
    if unfinished(path):
        raise BadFileError(
            f"{path} holds a profile that was not finished: its profiler was killed",
            try_=f"temper profile --finish {shlex.quote(str(path))}",
        )
    below = sorted({*path.glob(f"*/{folder.RUN_JSON}"), *path.glob("*/ops_perf_results*.csv")})
    raise BadFileError(
        f"{path} holds no profile",
        needs=f"{folder.RUN_JSON}, or a file named ops_perf_results*.csv",
        try_=[f"temper report {found.parent}" for found in below[-3:]],
    )


def _run(directory: Path) -> Profile:
    try:
        run = folder.read_run(directory)
        if run.op_count:
            return profile_of_run(run, str(directory), ALL)
    except BadFileError:
        if not (directory / folder.OPS_CSV).is_file():
            raise
    # The records are damaged; the CSV still has every op.
    if (directory / folder.OPS_CSV).is_file():
        return _csv(directory / folder.OPS_CSV)
    return profile_of_run(run, str(directory), ALL)


def _csv(path: Path, chip: str = "") -> Profile:
    return Profile(str(path), read_ops_csv(path, chip))
