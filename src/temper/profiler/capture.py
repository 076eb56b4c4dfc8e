"""One profile of one command: server, command, run folder, and what to say about it."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from temper.errors import TemperError, UsageError
from temper.profiler.command import run_command
from temper.profiler.environment import PORT_VARIABLE
from temper.profiler.files import check_writable
from temper.profiler.records import Run
from temper.profiler.server import DEFAULT_PORT, CaptureServer

# A background process that outlives the command is not waited for longer than this.
_LINGER_S = 3.0

ADVICE = """nothing connected on port {port}, so there is no profile.
  why    the command ran no model through temper in any of its processes; or its environment was
         cleared (sudo, env -i, a container) and {variable} was lost; or another program
         holds the port
  try    run the command alone and check that it uses backend="tt" or temper; keep
         {variable} in its environment; end dangling profilers; another port with -p"""


def profile_command(
    command: str, directory: Path, *, port: int | None = None, csv: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:  # fmt: skip
    """Run ``command``, write its profile to ``directory``, and return the command's exit code.

    ``environment`` is added to the command's.
    """
    if not command.strip():
        raise UsageError("no command to profile", try_='tt_profile "python script.py"')
    check_writable(directory)
    if csv is not None:
        check_writable(csv.parent)
    server = CaptureServer(port)
    if port is None and server.port != DEFAULT_PORT:
        say(f"port {DEFAULT_PORT} is taken; using {server.port}")
    variables = {**os.environ, **(environment or {}), PORT_VARIABLE: str(server.port)}
    started = time.time()
    try:
        code = run_command(command, variables)
        if not server.wait_until_idle(_LINGER_S):
            say(f"{server.connected} process(es) still run; their profile ends here")
    finally:
        logs = server.stop()
    run = Run.from_logs(
        logs,
        command=command,
        exit_code=code,
        started_unix_s=started,
        wall_s=time.time() - started,
        source="tt_profile",
    )
    if not run.op_count:
        _explain_empty(server, len(logs))
        return code
    written = _write(run, directory, csv)
    return code or written


def _write(run: Run, directory: Path, csv: Path | None) -> int:
    from temper.profiler.writers import write_run

    try:
        write_run(run, directory, csv=csv)
    except TemperError as error:
        say(str(error))
        return error.exit_code
    finally:
        for note in run.notes:
            say(note)
    shown = csv or directory
    say(f"{run.op_count} ops of {len(run.processes)} process(es), modelled device times: {shown}")
    say(f"next: temper report {shlex.quote(str(directory))}, or open {directory / 'report.html'}")
    return 0


def _explain_empty(server: CaptureServer, connections: int) -> None:
    if connections > server.strangers:
        say("the command started temper but ran no op on the chip, so there is no profile")
        return
    say(ADVICE.format(port=server.port, variable=PORT_VARIABLE))


def say(text: str) -> None:
    print(f"temper: {text}", file=sys.stderr, flush=True)
