"""One version number, a dated changelog, and the Python versions that the package claims."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from temper._version import __version__

ROOT = Path(__file__).resolve().parent.parent
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
CLAIMED = re.findall(r'Python :: (3\.\d+)"', PROJECT)
# What starts without third-party packages: the rooms that a plain interpreter can import.
PLAIN = (
    "errors", "files", "units", "clock", "chips", "machine.cards", "formats.names",
    "formats.sizes", "options", "program", "doctor.versions",
)  # fmt: skip


def test_the_version_stands_in_one_place() -> None:
    assert 'dynamic = ["version"]' in PROJECT
    assert not re.search(r'^version = "', PROJECT, re.M)
    assert 'input = "src/temper/_version.py"' in PROJECT


def test_the_changelog_has_a_dated_section_for_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (.+)$", text, re.M)
    assert sections[0] == "Unreleased"
    assert re.fullmatch(re.escape(__version__) + r" \(\d{4}-\d\d-\d\d\)", sections[1])
    assert all(re.fullmatch(r"[\d.]+ \(\d{4}-\d\d-\d\d\)", name) for name in sections[1:])


@cache
def interpreter(version: str) -> str | None:
    """An installed Python of that version, from the path or from pyenv."""
    pyenv = Path.home() / ".pyenv" / "versions"
    for found in (shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python")):
        if found is None:
            continue
        asked = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([found, "-c", asked], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return str(found)
    return None


@pytest.mark.parametrize("version", CLAIMED)
def test_every_file_compiles_on_a_claimed_python(version: str) -> None:
    found = interpreter(version)
    if found is None:
        pytest.skip(f"Python {version} is not installed here")
    code = (
        "import pathlib, sys\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).rglob('*.py')):\n"
        "    compile(path.read_text(encoding='utf-8'), str(path), 'exec')\n"
    )
    done = subprocess.run(
        [found, "-W", "error", "-c", code, str(ROOT / "src")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-800:]


@pytest.mark.parametrize("version", CLAIMED)
def test_the_rooms_without_dependencies_import_on_a_claimed_python(version: str) -> None:
    found = interpreter(version)
    if found is None:
        pytest.skip(f"Python {version} is not installed here")
    lines = [f"import temper.{name}" for name in PLAIN]
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n" + "\n".join(lines)
    done = subprocess.run(
        [found, "-W", "error", "-B", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-800:]
