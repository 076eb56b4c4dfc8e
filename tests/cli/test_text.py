"""Names that would act on a terminal, and terminals that know ASCII only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROWS = (
    "OP CODE,OP TYPE,DEVICE ID,DEVICE KERNEL DURATION [ns],CORE COUNT,LOC\n"
    'Evil\x1b[2J\x1b]0;owned\x07Op,tt_dnn_device,0,12345,8,"loc(""a\x9b31m\u202egnp.exe"")"\n'
)


def report(path: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "temper", "report", str(path)],
        env={**os.environ, **environment}, capture_output=True, check=False,
    )  # fmt: skip


def test_escapes_in_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text(ROWS, encoding="utf-8")
    done = report(path)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert "Evil" in text
    assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"}
    missing = report(tmp_path / "\x1b[31mred.csv")
    assert missing.returncode == 2
    assert b"\x1b" not in missing.stderr


def test_ascii_streams_get_ascii_text(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text(ROWS, encoding="utf-8")
    done = report(path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert b"12.3 us" in done.stdout
