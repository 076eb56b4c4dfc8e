"""One profile of one command: server, command, run folder, and what to say about it."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from temper.errors import TemperError, UsageError
from temper.files import check_writable, remove_empty
from temper.frontdoor.command import run_command
from temper.frontdoor.environment import PORT_VARIABLE
from temper.record.server import DEFAULT_PORT, CaptureServer
from temper.run.logs import run_from_logs
from temper.run.records import Run

# A background process that outlives the command is not waited for longer than this.
_LINGER_S = 3.0

ADVICE = """nothing connected on port {port}, so there is no profile.
  usual   no process of the command ran a model on the chip. It takes torch.compile(model,
          backend="tt"), temper.compile(model), or "temper run script.py" for scripts that
          were written for torch_xla, tt_torch or pybuda
  else    the environment was cleared (sudo, env -i, a container): keep {variable};
          or a dangling profiler is in the way: end it, or take another port with -p"""
_SHELL = {126: "cannot be executed", 127: "was not found"}


def profile_command(
    command: str, directory: Path, *, port: int | None = None, csv: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:  # fmt: skip
    """Run ``command``, write its profile to ``directory``, and return the command's exit code.

    ``environment`` is added to the command's.
    """
    if not command.strip():
        raise UsageError("no command to profile", try_='tt_profile "python script.py"')
    made = check_writable(directory)
    if csv is not None:
        check_writable(csv.parent)
    server = CaptureServer(port)
    if port is None and server.port != DEFAULT_PORT:
        say(f"port {DEFAULT_PORT} is taken; using {server.port}")
    variables = {**os.environ, **(environment or {}), PORT_VARIABLE: str(server.port)}
    started = time.time()
    from temper.machine.telemetry import Recorder

    try:
        with Recorder() as cards:  # at no cost without a card
            code = run_command(command, variables)
        if not server.wait_until_idle(_LINGER_S):
            say(f"{_counted(server.connected, 'process')} still running; the profile ends here")
    finally:
        logs = server.stop()
    run = run_from_logs(
        logs,
        command=command,
        exit_code=code,
        started_unix_s=started,
        wall_s=time.time() - started,
        source="tt_profile",
        **({"cards": cards.summary()} if cards.readings else {}),
    )
    if not run.op_count:
        _explain_empty(server, len(logs), code)
        remove_empty(made)
        return code
    written = _write(run, directory, csv)
    cards.save(directory / "cards.csv")
    return code or written


def _write(run: Run, directory: Path, csv: Path | None) -> int:
    from temper.report.writers import write_run

    try:
        write_run(run, directory, csv=csv)
    except TemperError as error:
        say(str(error))
        return error.exit_code
    finally:
        for note in run.notes:
            say(note)
    ops, processes = _counted(run.op_count, "op"), _counted(len(run.processes), "process")
    say(f"{ops} of {processes}, modelled device times: {csv or directory}")
    say(f"next: temper report {shlex.quote(str(directory))}, or open {directory / 'report.html'}")
    return 0


def _explain_empty(server: CaptureServer, connections: int, code: int) -> None:
    if code:
        say(f"the command {_SHELL.get(code, f'ended with exit code {code}')}")
    if code in _SHELL:
        return
    if connections > server.strangers:
        say("the command started temper but ran no op on the chip, so there is no profile")
        return
    say(ADVICE.format(port=server.port, variable=PORT_VARIABLE))


def _counted(count: int, word: str) -> str:
    plural = word + ("es" if word.endswith("s") else "s")
    return f"{count:,} {word if count == 1 else plural}"


def say(text: str) -> None:
    print(f"temper: {text}", file=sys.stderr, flush=True)
