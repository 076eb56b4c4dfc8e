"""Where ttnn lives on this machine, and what is wrong with it, one line each.

``TEMPER_TTNN`` names the environment: a Python executable, a virtual environment, or the folder of
a mocked device. Without it: this Python where it has ttnn, else the folder that the documented
command makes. ttnn's wheels are for Python 3.10 and 3.12 and want numpy below 2.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from temper.errors import TemperError

VARIABLE = "TEMPER_TTNN"
VERSION = "0.81.1"  # the one that the table of calls was checked with
_BOARDS = {"n150": "n150", "n300": "n150", "p100": "p150", "p150": "p150"}
_DEVICES = Path("/dev/tenstorrent")
_PROBE = """import importlib.util, importlib.metadata, json, sys
spec = importlib.util.find_spec("ttnn")
found = {"python": "%d.%d" % sys.version_info[:2], "ttnn": None, "numpy": None}
for name in ("ttnn", "numpy"):
    try: found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError: pass
print(json.dumps(found))"""


class TtnnError(TemperError):
    """ttnn, its environment or the card cannot do what was asked."""


@dataclass(frozen=True)
class Environment:
    """A Python with ttnn, and the variables that it wants."""

    python: Path
    variables: dict[str, str] = field(default_factory=dict)
    mocked: bool = False
    in_process: bool = False


def default_folder() -> Path:
    """Where the documented command puts the environment."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "temper" / "ttnn"


def make_command() -> str:
    """The command that makes the environment, for people."""
    folder = default_folder()
    return f"python3.12 -m venv {folder} && {folder}/bin/pip install ttnn=={VERSION}"


def find(chip: str) -> Environment:
    """The environment for a board; TtnnError in one line where there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return _from_path(Path(named).expanduser(), chip)
    if importlib.util.find_spec("ttnn") is not None:
        mocked = bool(os.environ.get("TT_METAL_MOCK_CLUSTER_DESC_PATH"))
        return Environment(Path(sys.executable), {}, mocked, in_process=True)
    if (default_folder() / "bin" / "python").exists():
        return _from_path(default_folder(), chip)
    raise TtnnError(
        "there is no environment with ttnn",
        needs=f"ttnn in this Python, or {VARIABLE} set to a Python that has it",
        try_=[make_command(), "target='virtual'"],
    )


def _from_path(path: Path, chip: str) -> Environment:
    if path.is_file():
        return Environment(path)
    if not path.is_dir():
        raise TtnnError(f"{VARIABLE} names {path}, which does not exist", try_=make_command())
    cluster = path / "clusters" / f"{_BOARDS.get(chip, chip)}.yaml"
    python = path / "venv" / "bin" / "python"
    if python.exists():
        if not cluster.exists():
            raise TtnnError(f"the mocked device in {path} has no {chip}", try_="--chip n150")
        variables = {
            "TT_METAL_MOCK_CLUSTER_DESC_PATH": str(cluster),
            "TT_METAL_CACHE": f"{path}/cache/",
            "TT_LOGGER_LEVEL": "fatal",
            "LOGURU_LEVEL": "WARNING",
        }
        return Environment(python, variables, mocked=True)
    python = path / "bin" / "python"
    if not python.exists():
        raise TtnnError(f"{VARIABLE} names {path}, which has no bin/python", try_=make_command())
    return Environment(python)


def problems(environment: Environment) -> list[str]:
    """What stops this environment from running a program, one line each; nothing when it works."""
    try:
        ran = subprocess.run(
            [str(environment.python), "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"{environment.python} does not start: {error}"]
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or ["no message"])[-1]
        return [f"{environment.python} does not start: {last}"]
    found = json.loads(ran.stdout)
    if found["ttnn"] is None:
        return [f"{environment.python} (Python {found['python']}) has no ttnn: {make_command()}"]
    told = []
    if found["ttnn"].split("+")[0] != VERSION:
        told.append(
            f"ttnn {found['ttnn']} in {environment.python}; Temper's calls were checked with "
            f"{VERSION}: pip install ttnn=={VERSION}"
        )
    if found["numpy"] and int(found["numpy"].split(".")[0]) >= 2:
        told.append(f"numpy {found['numpy']} beside ttnn; its wheels want numpy below 2")
    return told + ([] if environment.mocked else card_problems())


def card_problems(devices: Path = _DEVICES) -> list[str]:
    """Why no card answers: driver, device files, permissions, another process."""
    if not Path("/sys/module/tenstorrent").exists() and not devices.exists():
        return ["the driver tenstorrent is not loaded: sudo modprobe tenstorrent"]
    nodes = sorted(devices.iterdir()) if devices.is_dir() else []
    if not nodes:
        return [f"no card: {devices} is empty (temper doctor says more)"]
    closed = [node for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        return [f"no permission for {closed[0]}: add yourself to its group, or see temper doctor"]
    holders = _holders(nodes[0])
    if holders:
        return [f"the card is busy: process {', '.join(map(str, holders))} holds {nodes[0]}"]
    return []


def _holders(node: Path) -> list[int]:
    """Other processes that have the device file open, as far as we may look."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(entry) == str(node):
                pid = int(entry.parts[2])
                if pid != os.getpid():
                    found.append(pid)
        except OSError:
            continue
    return sorted(set(found))
