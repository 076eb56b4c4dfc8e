"""Tools of the field in environments of their own: found, built from the package index, or skipped.

``TEMPER_TOOLS`` names a directory for the environments, so that they are built once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_BUILD_TIMEOUT_S = 240


def python_with(package: str) -> str:
    """The interpreter of an environment that has ``package``; skips with the reason if none."""
    home = os.environ.get("TEMPER_TOOLS")
    base = Path(home) if home else Path.home() / ".cache" / "temper-tools"
    place = base / package
    python = place / "bin" / "python"
    if (place / "ready").is_file():
        return str(python)
    try:
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-m", "venv", str(place)], check=True, capture_output=True, timeout=120
        )
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", package],
            check=True,
            capture_output=True,
            timeout=_BUILD_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", b"") or str(error).encode()
        pytest.skip(f"{package} cannot be installed here: {reason.decode()[-200:]}")
    (place / "ready").touch()
    return str(python)


def run_with(package: str, code: str, *arguments: str) -> str:
    """Standard output of ``code`` run beside ``package``."""
    done = subprocess.run(
        [python_with(package), "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
