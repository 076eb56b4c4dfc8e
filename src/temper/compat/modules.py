"""Which modules the stand-ins have: files of their folder, and rows of the table of forwards."""

from __future__ import annotations

from pathlib import Path

from temper.compat.forwards import FORWARDS

FOLDER = Path(__file__).parent / "standins"


def submodules(top: str) -> list[str]:
    """The modules that a stand-in has, by full name."""
    found = {name for name in FORWARDS if name == top or name.startswith(f"{top}.")}
    for file in (FOLDER / top).rglob("*.py"):
        parts = file.relative_to(FOLDER).with_suffix("").parts
        found.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(found)
