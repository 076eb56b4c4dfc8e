"""Stand-ins as a last resort of import: found only when no real package of that name exists."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

STAND_INS = ("torch_xla", "tt_torch", "tracy", "pybuda")
_FOLDER = Path(__file__).parent / "standins"


class StandInFinder:
    """The last finder of ``sys.meta_path``: every other finder, so every real package, wins."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, *rest = name.split(".")
        if top not in STAND_INS or not (not rest or is_stand_in(top)):
            return None
        base = _FOLDER.joinpath(top, *rest)
        package = base / "__init__.py"
        file = package if package.is_file() else base.with_suffix(".py")
        if not file.is_file():
            raise ModuleNotFoundError(
                f"No module named {name!r}: {top} is Temper's stand-in here, which has "
                f"{', '.join(submodules(top))}",
                name=name,
            )
        if not rest and top not in self.told:
            self.told.add(top)
            print(
                f"temper: {top} is a stand-in for the virtual chip; the real package is not "
                "installed",
                file=sys.stderr,
            )
        search = [str(base)] if file is package else None
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=search)


def install() -> None:
    """Make the stand-ins importable in this process; doing it twice does nothing more."""
    if not any(isinstance(finder, StandInFinder) for finder in sys.meta_path):
        sys.meta_path.append(StandInFinder())


def uninstall() -> None:
    """Take the stand-ins out again, loaded ones too."""
    sys.meta_path[:] = [item for item in sys.meta_path if not isinstance(item, StandInFinder)]
    for name in [name for name in sys.modules if name.split(".")[0] in STAND_INS]:
        if is_stand_in(name):
            del sys.modules[name]


def is_stand_in(name: str) -> bool:
    """Whether the loaded module of that name is ours."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    return file is not None and _FOLDER in Path(file).parents


def submodules(top: str) -> list[str]:
    """The modules that a stand-in has, by full name."""
    found = []
    for file in sorted((_FOLDER / top).rglob("*.py")):
        parts = file.relative_to(_FOLDER).with_suffix("").parts
        found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(found)
