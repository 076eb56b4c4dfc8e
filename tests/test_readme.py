"""What the README shows runs: its commands, and its Python lines in the example they come from."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (temper .+)$", TEXT, re.MULTILINE)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    binaries = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs(command: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = run(command, tmp_path)
    # The doctor may find something to complain about on the machine that runs this.
    allowed = {0, 1} if command.startswith("temper doctor") else {0}
    assert done.returncode in allowed, done.stderr
    assert done.stdout.strip()


def test_the_python_of_the_readme_is_that_of_the_example() -> None:
    example = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert any(block in example for block in blocks)
    for block in blocks:
        compile(block, "README.md", "exec")


def test_every_link_of_the_readme_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_pictures_of_the_readme_are_small_and_drawn_by_a_command() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)
    assert {Path(path).stem for path in shown} == {"ladder", "page"}
    for path in shown:
        assert (ROOT / path).read_bytes()[:4] == b"\x89PNG"
        assert (ROOT / path).stat().st_size < 300_000
    assert "make pictures" in TEXT
    assert "scripts/pictures.py" in (ROOT / "Makefile").read_text()
