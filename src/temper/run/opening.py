"""Opening whatever a person points at: a run folder, a profiler's folder, or an ops CSV."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from temper.errors import BadFileError
from temper.run import folder
from temper.run.card_csv import read_ops_csv
from temper.run.records import Run
from temper.run.run_table import table_of_run
from temper.run.table import OpTable


@dataclass(frozen=True)
class Profile:
    """Ops in columns, and the whole run where its records are there."""

    name: str
    table: OpTable
    run: Run | None = None


def open_profile(path: Path) -> Profile:
    """A run folder, a folder of tt-metal's profiler (the newest report in it), or a CSV."""
    if not path.exists():
        raise BadFileError(f"{path} does not exist")
    if path.is_file():
        if path.name == folder.RUN_JSON:
            return _run(path.parent)
        return _csv(path)
    if (path / folder.RUN_JSON).is_file():
        return _run(path)
    found = sorted(path.rglob("ops_perf_results*.csv"), key=lambda p: p.stat().st_mtime)
    if not found:
        raise BadFileError(
            f"{path} holds no profile",
            needs=f"{folder.RUN_JSON}, or a file named ops_perf_results*.csv",
        )
    return _csv(found[-1])


def _run(directory: Path) -> Profile:
    try:
        run = folder.read_run(directory)
        if run.op_count:
            return Profile(str(directory), table_of_run(run), run)
    except BadFileError:
        if not (directory / folder.OPS_CSV).is_file():
            raise
    # The records are damaged; the CSV still has every op.
    if (directory / folder.OPS_CSV).is_file():
        return _csv(directory / folder.OPS_CSV)
    return Profile(str(directory), table_of_run(run), run)


def _csv(path: Path) -> Profile:
    return Profile(str(path), read_ops_csv(path))
