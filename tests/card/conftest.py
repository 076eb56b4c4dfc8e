"""The real ttnn on a mocked device for these tests: found, or made once outside the source tree."""

from __future__ import annotations

import fcntl
import os
import subprocess
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT.parent / "shared" / "ttnn-mock" / "setup.sh"


def _made() -> Path | None:
    """The folder of the mocked device; None where it cannot be had."""
    named = os.environ.get("TEMPER_TTNN")
    if named:
        return Path(named)
    folder = Path(os.environ.get("TEMPER_TTNN_MOCK", Path.home() / ".cache/temper/ttnn-mock"))
    if (folder / "activate").exists():
        return folder
    if not SETUP.exists():
        return None
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of one test run start together
        if not (folder / "activate").exists():
            ran = subprocess.run(
                ["bash", str(SETUP), str(folder)], capture_output=True, check=False
            )
            if ran.returncode:
                return None
    return folder


@pytest.fixture(scope="session")
def mock_folder() -> Path:
    """The mocked device, or a loud skip."""
    folder = _made()
    if folder is None or not (folder / "clusters").is_dir():
        why = "no environment with ttnn: set TEMPER_TTNN to a mocked device (docs/card.md)"
        warnings.warn(f"tests of the card target are skipped: {why}", stacklevel=1)
        pytest.skip(why)
    return folder


@pytest.fixture
def ttnn_here(mock_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TEMPER_TTNN points to the mocked device."""
    monkeypatch.setenv("TEMPER_TTNN", str(mock_folder))
    return mock_folder
