"""Stand-ins as a last resort of import: found only when no real package of that name exists."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

from temper.compat import dynamo_names
from temper.compat.dynamo_names import REPLACED
from temper.compat.forwards import FORWARDS, ForwardLoader
from temper.compat.missing import getattr_for
from temper.compat.modules import FOLDER as _FOLDER
from temper.compat.modules import submodules

STAND_INS = (
    "torch_xla", "tt_torch", "tracy", "pybuda", "forge", "tt_mlir", "ttxla_tools",
    "torch_plugin_tt",
)  # fmt: skip
# A source tree of tt-torch or tt-xla on the path has the Python without the compiled parts.
_TREE_FILES = ("dynamo/backend.py", "backend/backend.py")
_COMPILED_PARTS = ("tt_mlir", "torch_xla")
# Names that this process or one that started it has spoken of.
_TOLD_VARIABLE = "TEMPER_RUN_TOLD"


class StandInFinder:
    """Asks every other finder first, so that a real package wins, as if ours were installed last.

    It has to stand first itself: to Python a bare folder of that name is a package too, which a
    package installed later on the path overrules. Such a folder counts as real only where
    packages are installed, and when there is code in it.
    """

    def __init__(self, installed: Sequence[str]) -> None:
        self.installed = list(installed)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == REPLACED and any(map(is_stand_in, ("torch_xla", "tt_torch"))):
            return importlib.util.spec_from_file_location(name, dynamo_names.__file__)
        top, *rest = name.split(".")
        if top not in STAND_INS or (not is_stand_in(top) if rest else self._is_real(name)):
            return None
        base = _FOLDER.joinpath(top, *rest)
        if name in FORWARDS:
            return self._forwarded(name, base)
        package = base / "__init__.py"
        file = package if package.is_file() else base.with_suffix(".py")
        if not file.is_file():
            raise ModuleNotFoundError(
                f"No module named {name!r}: {top} is Temper's stand-in here, which has "
                f"{', '.join(submodules(top))}",
                name=name,
            )
        search = [str(base)] if file is package else None
        return importlib.util.spec_from_file_location(
            name, file, loader=_Loader(name, str(file)), submodule_search_locations=search
        )

    @staticmethod
    def _forwarded(name: str, base: Path) -> ModuleSpec:
        spec = ModuleSpec(name, ForwardLoader(getattr_for), origin=str(base))
        if any(other.startswith(f"{name}.") for other in submodules(name.partition(".")[0])):
            spec.submodule_search_locations = [str(base)]
        return spec

    def _is_real(self, name: str) -> bool:
        """Whether others have the package; a source tree that cannot be imported does not count."""
        if name == "tt_torch" and not any(map(self._found, _COMPILED_PARTS)):
            spec = PathFinder.find_spec(name)
            places = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
            if any((place / file).is_file() for place in places for file in _TREE_FILES):
                return False
        return self._found(name)

    def _found(self, name: str) -> bool:
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, None)
            if spec is None:
                continue
            if spec.origin is not None or finder is not PathFinder:
                return True
            places = PathFinder.find_spec(name, self.installed)
            return places is not None and _has_code(places.submodule_search_locations or ())
        return False


class _Loader(SourceFileLoader):
    """Says that a stand-in is in use when it is imported, not when someone looks for it."""

    def exec_module(self, module: ModuleType) -> None:
        if "." not in module.__name__:
            _tell(module.__name__)
        super().exec_module(module)


def install(places: Sequence[str] | None = None) -> None:
    """Make the stand-ins importable in this process; doing it twice does nothing more.

    ``places`` are where packages are installed; by default the path without its first entry,
    which is where the program lies.
    """
    # The last resort (temper_startup) has nothing to add to this.
    sys.meta_path[:] = [
        item for item in sys.meta_path if getattr(item, "__module__", "") != "temper_startup"
    ]
    if not any(isinstance(finder, StandInFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, StandInFinder(sys.path[1:] if places is None else places))


def uninstall() -> None:
    """Take the stand-ins out again, loaded ones too."""
    sys.meta_path[:] = [item for item in sys.meta_path if not isinstance(item, StandInFinder)]
    os.environ.pop(_TOLD_VARIABLE, None)
    for name in [name for name in sys.modules if name.split(".")[0] in STAND_INS]:
        if is_stand_in(name):
            del sys.modules[name]
    if "temper.compat.torch_device" in sys.modules:
        sys.modules["temper.compat.torch_device"].give_xla_back()


def is_stand_in(name: str) -> bool:
    """Whether the loaded module of that name is ours."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    origin = getattr(module, "__file__", None) or getattr(spec, "origin", None)
    return origin is not None and _FOLDER in Path(origin).parents


def _has_code(folders: Sequence[str]) -> bool:
    return any(
        file.suffix in (".py", ".so", ".pyd")
        for folder in folders
        for file in Path(folder).rglob("*")
    )


def _tell(name: str) -> None:
    told = os.environ.get(_TOLD_VARIABLE, "").split()
    if name not in told:
        os.environ[_TOLD_VARIABLE] = " ".join([*told, name])
        print(
            f"temper: {name} is a stand-in for the virtual chip; the real package is not installed",
            file=sys.stderr,
        )
