"""``temper profile "command"``: profile any command and write one run folder."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import click

from temper.cli.model import target_option
from temper.cli.values import Whole
from temper.errors import UsageError


@click.command(
    # Options before the command are ours, all after it belong to the command.
    context_settings={"allow_interspersed_args": False},
    epilog='Examples: temper profile "python script.py", temper profile python script.py --fast, '
    'temper profile -o runs/mnist "pytest -svv tests/test_mnist.py | tee log".',
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Run folder; default results/perf/run_<date>_<time>.",
)
@click.option(
    "-p", "--port", type=Whole(1, 65535), help="Port of the capture server; default 8086 or next."
)
@click.option(
    "--finish",
    "unfinished",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Write the profile of a run whose profiler was killed, from what it had received.",
)
@target_option
@click.argument("command_line", metavar="COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(
    output: Path | None, port: int | None, unfinished: Path | None, command_line: tuple[str, ...]
) -> None:
    """Profile a command and every process it starts; its exit code is passed on.

    COMMAND is one quoted text for the shell, or the words as you would type them.
    """
    from temper.frontdoor.profile_command import finish, profile_command

    if unfinished is not None:
        if command_line:
            raise UsageError("--finish takes no command")
        sys.exit(finish(unfinished))
    if not command_line:
        raise UsageError("no command to profile", try_='temper profile "python script.py"')
    whole = command_line[0] if len(command_line) == 1 else shlex.join(command_line)
    directory = output or Path("results") / "perf" / time.strftime("run_%Y_%m_%d_%H_%M_%S")
    sys.exit(profile_command(whole, directory, port=port))
