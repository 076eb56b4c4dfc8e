"""Write docs/reference.md from the docstrings of the public Python interface.

python scripts/reference.py [--check]; --check exits with 1 where the page is not current.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import temper
from temper import etl
from temper.files import write_text
from temper.frontdoor.compiled import CompiledModel
from temper.tuning.bench import Bench

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
HEAD = """# Python reference

Written by `scripts/reference.py` from the docstrings; a test holds it current and runs its
examples. The command line tells the same of itself: `temper COMMAND --help`.
"""
# Every record has these; they mean what their names say.
_PLAIN = ("as_dict",)
# A default whose text is longer is not shown.
_LONG = 60


def page() -> str:
    """The whole page as text."""
    parts = [HEAD]
    for name in sorted(temper.__all__, key=str.lower):
        if not name.startswith("_"):
            parts += _entry(f"temper.{name}", getattr(temper, name))
    for thing in (CompiledModel, Bench):  # what compile and bench give
        parts += _entry(f"{thing.__module__}.{thing.__name__}", thing)
    parts += _entry("temper.etl", etl)
    return "\n".join(parts).rstrip() + "\n"


def _entry(name: str, thing: Any) -> list[str]:
    if inspect.ismodule(thing):
        lines = [f"## {name}", "", _doc(thing), ""]
        for each in getattr(thing, "__all__", ()):
            found = getattr(thing, each)
            if inspect.isclass(found):
                lines += [f"### class {name}.{each}{_signature(found)}", "", _doc(found), ""]
                lines += _members(found)
            elif callable(found):
                lines += [f"### {name}.{each}{_signature(found)}", "", _doc(found), ""]
        return lines
    if inspect.isclass(thing):
        return [f"## class {name}", "", _doc(thing), "", *_members(thing)]
    return [f"## {name}", "", "```python", f"{name}{_signature(thing)}", "```", "", _doc(thing), ""]


def _members(thing: type) -> list[str]:
    """Public methods and properties; every one of them has a docstring."""
    lines = []
    for name, member in vars(thing).items():
        if name.startswith("_") or name in _PLAIN:
            continue
        if isinstance(member, property):
            lines.append(f"- `{name}`: {_first(member)}")
        elif callable(member) or isinstance(member, (classmethod, staticmethod)):
            lines.append(f"- `{name}{_signature(getattr(thing, name))}`: {_first(member)}")
    return [*lines, ""] if lines else []


def _first(thing: Any) -> str:
    return " ".join(_doc(thing).partition("\n\n")[0].split())


def _signature(thing: Any) -> str:
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(...)"
    short = [
        p.replace(default=...) if len(repr(p.default)) > _LONG else p
        for p in found.parameters.values()
    ]
    text = str(found.replace(parameters=short)).replace("Ellipsis", "...")
    # Defaults whose text holds an address differ from run to run; annotations are text here.
    text = re.sub(r"<function .*? at 0x[0-9a-f]+>", "...", text).replace("'", '"')
    return re.sub(r'(: |-> )"([^"]*)"', r"\1\2", text)


def _doc(thing: Any) -> str:
    text = inspect.getdoc(thing)
    if not text:
        raise SystemExit(f"{thing!r} has no docstring")
    return text


def main() -> None:
    """Write the page, or check it."""
    text = page()
    if "--check" in sys.argv:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit(f"{PAGE.name} is not current: run python scripts/reference.py")
        return
    write_text(PAGE, text)


if __name__ == "__main__":
    main()
