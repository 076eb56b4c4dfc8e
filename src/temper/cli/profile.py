"""``temper profile "command"``: profile any command and write one run folder."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import click

from temper.errors import UsageError


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog='Examples: temper profile "python script.py", '
    'temper profile -o runs/mnist "pytest -svv tests/test_mnist.py".',
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Run folder; default results/perf/run_<date>_<time>.",
)
@click.option("-p", "--port", type=int, help="Port of the capture server; default 8086 or next.")
@click.argument("command_line", metavar='"COMMAND"', nargs=-1, required=True)
def command(output: Path | None, port: int | None, command_line: tuple[str, ...]) -> None:
    """Profile a command and every process it starts; its exit code is passed on."""
    from temper.doctor.telemetry import Recorder
    from temper.profiler.capture import profile_command

    if len(command_line) > 1:
        whole = shlex.quote(shlex.join(command_line))
        raise UsageError("the command must be quoted", try_=f"temper profile {whole}")
    directory = output or Path("results") / "perf" / time.strftime("run_%Y_%m_%d_%H_%M_%S")
    with Recorder() as cards:  # at no cost without a card
        status = profile_command(command_line[0], directory, port=port)
    if directory.is_dir():
        cards.save(directory / "cards.csv")
    sys.exit(status)
