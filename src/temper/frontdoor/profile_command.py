"""One profile of one command: server, command, run folder, and what to say about it."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from temper.errors import TemperError, UsageError
from temper.files import check_writable, remove_empty
from temper.frontdoor.command import run_command
from temper.machine.telemetry import CardRecorder
from temper.record.capture import PREFIX, Capture, unfinished
from temper.record.server import DEFAULT_PORT, CaptureServer
from temper.run.logs import run_from_logs
from temper.run.records import Run
from temper.units import shown

# A background process that outlives the command is not waited for longer than this.
_LINGER_S = 3.0

ADVICE = """nothing connected on port {port}, so there is no profile.
  usual   no process of the command ran a model on the chip. It takes torch.compile(model,
          backend="tt"), temper.compile(model), or "temper run script.py" for scripts that
          were written for torch_xla, tt_torch or pybuda
  else    the environment was cleared (sudo, env -i, a container): keep {variable};
          or a dangling profiler is in the way: end it, or take another port with -p"""
_SHELL = {126: "cannot be executed", 127: "was not found"}
# What pytest's exit codes say of a run in which no test began.
_PYTEST = {
    2: "pytest could not collect the tests: a test file, or what it imports, failed",
    4: "pytest did not begin: conftest.py failed to import, or the arguments name no test",
    5: "pytest found no test to run",
}


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
    set_aside(directory)
    offer(directory.parent)
    capture = Capture.inside(directory)
    started = time.time()
    capture.describe({"command": command, "started_unix_s": started})

    with capture.held():
        try:
            server = CaptureServer(port, capture)
            if port is None and server.port != DEFAULT_PORT:
                say(f"port {DEFAULT_PORT} is taken; using {server.port}")
            variables = {**os.environ, **(environment or {}), **server.environment}
            try:
                with CardRecorder() as cards:  # at no cost without a card
                    code = run_command(command, variables)
                if not server.wait_until_idle(_LINGER_S):
                    say(f"{_counted(server.connected, 'process')} still running; the profile ends")
            finally:
                logs = server.stop()
        except BaseException:
            if not any(log for log in capture.logs() if not log.empty):
                capture.remove()
            raise
        if server.problem:
            say(f"records could not be written and are missing: {server.problem}")
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
            capture.remove()
            _explain_empty(server, code, command)
            remove_empty(made)
            return code
        written = _write(run, directory, csv)
        cards.save(directory / "cards.csv")
        if not written:
            capture.remove()
    return code or written


def finish(directory: Path) -> int:
    """Write the profile of a command whose profiler was killed, from what it had received."""
    found = unfinished(directory)
    if not found:
        raise UsageError(
            f"{directory} holds no unfinished profile",
            try_=f"temper report {shlex.quote(str(directory))}",
        )
    for number, capture in enumerate(found):
        target = directory if not number else directory.with_name(f"{directory.name}_{number}")
        about = capture.about()
        run = run_from_logs(capture.logs(), **about, source="tt_profile")
        run = replace(run, notes=(*run.notes, "the profiler was killed; this is what it received"))
        aside = capture.directory.rename(directory.parent / f".{directory.name}{PREFIX}{number}")
        if run.op_count and _write(run, target, None):
            aside.rename(capture.directory)
            return 1
        if not run.op_count:
            say("the command ran no op on the chip before the profiler was killed")
        Capture(aside).remove()
    return 0


def set_aside(directory: Path) -> None:
    """Keep an unfinished profile out of the way of a new one in the same folder."""
    for capture in unfinished(directory):
        place = directory.with_name(f"{directory.name}_unfinished_{int(time.time())}")
        place.mkdir(parents=True, exist_ok=True)
        capture.directory.rename(place / capture.directory.name)


def offer(folder: Path) -> None:
    """Say which profiles beside this one were never finished, and how to finish them."""
    for place in sorted(folder.glob(f"*/{PREFIX}*")):
        for capture in unfinished(place.parent):
            command = capture.about().get("command", "a command")
            say(
                f"the profile of {command} was not finished: "
                f"temper profile --finish {shlex.quote(str(place.parent))}"
            )


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


def _explain_empty(server: CaptureServer, code: int, command: str) -> None:
    if code:
        say(f"the command {_SHELL.get(code, f'ended with exit code {code}')}")
    if code in _SHELL:
        return
    if code in _PYTEST and "pytest" in command:
        say(f"{_PYTEST[code]}; its own message stands above")
        return
    if server.accepted:
        say("the command started temper but ran no op on the chip, so there is no profile")
        return
    say(ADVICE.format(port=server.port, variable=" and ".join(server.environment)))


def _counted(count: int, word: str) -> str:
    plural = word + ("es" if word.endswith("s") else "s")
    return f"{count:,} {word if count == 1 else plural}"


def say(text: str) -> None:
    """One line on standard error, for the person who profiles."""
    print(f"temper: {shown(text)}", file=sys.stderr, flush=True)
