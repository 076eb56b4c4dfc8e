"""Writers of the run folder's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from temper.errors import TemperError
from temper.files import check_writable, replacing_folder, same_file_at
from temper.report.html import write_html
from temper.report.writers.chrome import write_chrome_trace, write_folded
from temper.report.writers.device_log import write_device_log
from temper.report.writers.memory_report import write_memory_report
from temper.report.writers.ops_csv import write_ops_csv
from temper.report.writers.perfetto import write_perfetto
from temper.report.writers.tracy import write_tracy
from temper.run import folder
from temper.run.records import Run

__all__ = ["write_device_log", "write_ops_csv", "write_perfetto", "write_run", "write_tracy"]


# Above this many rows the CSV is written once, with a last column that names the chip: a second
# one with other names is as large.
_ROWS_FOR_BOTH = 100_000


def write_run(run: Run, directory: Path, *, csv: Path | None = None) -> Path:
    """Write every file of the run folder; ``csv`` is a second place for the ops CSV.

    The folder appears as a whole. One file that cannot be written does not cost the others: what
    failed is told at the end.
    """
    check_writable(directory)
    with replacing_folder(directory, folder.is_ours) as part:
        failed = _write_files(run, part)
    if csv is not None:
        same_file_at(directory / folder.OPS_CSV, csv)
    if failed:
        raise (
            failed[0]
            if len(failed) == 1
            else TemperError(
                f"{len(failed)} files of the profile could not be written; the others are complete",
                first=failed[0].what,
            )
        )
    return directory


def _write_files(run: Run, directory: Path) -> list[TemperError]:
    """What went wrong, file by file."""
    tracy, alone = directory / folder.TRACY, run.op_count > _ROWS_FOR_BOTH
    steps: list[Callable[[], None]] = [
        lambda: folder.write_records(run, directory),
        lambda: write_ops_csv(run, directory / folder.OPS_CSV, chip_last=alone),
        lambda: write_device_log(run, directory / folder.DEVICE_LOG),
        lambda: write_tracy(run, tracy),
        # ttnn-visualizer looks for it beside the CSVs, tt-metal puts it into .logs.
        lambda: same_file_at(tracy, directory / tracy.name),
        lambda: write_perfetto(run, directory / folder.PERFETTO),
        lambda: write_memory_report(run, directory / folder.MEMORY),
        lambda: write_chrome_trace(run, directory / folder.CHROME),
        lambda: write_folded(run, directory / folder.FOLDED),
        lambda: write_html(run, directory / folder.REPORT),
    ]
    if not alone:
        # Last, because ttnn-visualizer takes the newest CSV and this one names the chip.
        steps.append(lambda: write_ops_csv(run, directory / folder.OPS_CSV_NEWER, newer=True))
    failed = []
    for step in steps:
        try:
            step()
        except TemperError as error:
            failed.append(error)
    return failed
