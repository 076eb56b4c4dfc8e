"""The two commands that the doctor may run: ``tt-smi -s`` and ``dmesg``, with a time limit."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass

TIME_LIMIT_S = 10.0
_MAX_OUTPUT = 4 << 20
# Tried in order: old versions of tt-smi do not know --snapshot_no_tty.
KNOWN = {
    "tt-smi": (("tt-smi", "-s", "--snapshot_no_tty"), ("tt-smi", "-s")),
    "dmesg": (("dmesg", "--level=emerg,alert,crit,err,warn"),),
}


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """Standard output of a command; status is ok, absent, timeout or failed."""

    status: str
    text: str = ""


def run_known(name: str, time_limit_s: float = TIME_LIMIT_S) -> CommandOutput:
    """Output of the first variant that succeeds; never raises, never waits past the limit."""
    last = CommandOutput("absent")
    for arguments in KNOWN[name]:
        if shutil.which(arguments[0]) is None:
            return CommandOutput("absent")
        last = _run(arguments, time_limit_s)
        if last.status in ("ok", "timeout"):
            return last
    return last


def _run(arguments: tuple[str, ...], time_limit_s: float) -> CommandOutput:
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C", "NO_COLOR": "1"},
            start_new_session=True,
        )
    except OSError:
        return CommandOutput("failed")
    try:
        output, _ = process.communicate(timeout=time_limit_s)
    except subprocess.TimeoutExpired:
        # tt-smi may have children; its own session is ended as a whole.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return CommandOutput("timeout")
    status = "ok" if process.returncode == 0 else "failed"
    return CommandOutput(status, output[:_MAX_OUTPUT].decode("utf-8", "replace"))
