"""The reference page of the Python interface: current, complete, its examples true."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

import temper
from temper import formats

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"``(\w+\([^`]*\) == [^`]+)``", TEXT)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="signatures are written as 3.11 has it")
def test_the_reference_is_what_the_docstrings_say() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "reference.py"))
    assert script["page"]() == TEXT, "run python scripts/reference.py"


def test_every_public_name_has_its_place() -> None:
    for name in temper.__all__:
        assert name.startswith("_") or f"temper.{name}" in TEXT


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_reference_is_true(example: str) -> None:
    names = {name: getattr(formats, name) for name in formats.__all__}
    assert eval(example, names)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2
