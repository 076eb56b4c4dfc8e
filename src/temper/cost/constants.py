"""The fitted constants: the package's, or those of a file of the user's own (``cost_data``)."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from temper.chips import ARCHITECTURES
from temper.cost import sfpu
from temper.cost.bands import NOVELTY, MeasuredCells
from temper.errors import BadFileError, UsageError

DATA = Path(__file__).parent / "data" / "constants.json"
FORMAT = 2
SEPARATOR = "/"
Variant = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Factors:
    """Factors of the physics terms for one kernel variant."""

    serial: tuple[float, ...]
    overlap: tuple[float, ...]
    rows: int  # measured rows of this arch behind the factors; 0: carried over from another arch
    near: int  # rows of this arch that share the kernel's first name; 0: extrapolated


@dataclass(frozen=True)
class Family:
    """One family on one architecture."""

    power: float
    serial: tuple[str, ...]
    overlap: tuple[str, ...]
    nodes: Mapping[Variant, Factors]
    largest: float  # size of the largest op measured
    seen: MeasuredCells
    bands: Mapping[str, tuple[float, float]]  # by novelty, as factors of the modelled time
    found: dict[Variant, Factors] = field(default_factory=dict)

    def lookup(self, variant: Variant) -> Factors:
        """Factors of the finest node known for a variant."""
        hit = self.found.get(variant)
        if hit is None:
            path = variant
            while path not in self.nodes:
                path = path[:-1]
            hit = self.found[variant] = self.nodes[path]
        return hit


@dataclass(frozen=True)
class Constants:
    """Everything a fit leaves behind."""

    families: Mapping[tuple[str, str], Family]  # (family, arch)
    meta: Mapping[str, Any]

    def family(self, name: str, arch: str) -> Family:
        """An architecture's fit of a family, else of its other ops; one that nobody has measured
        takes the fit of the architecture that stands in for it, with the widest band."""
        found = self.families.get((name, arch)) or self.families.get(("other", arch))
        if found is not None:
            return found
        stand_in = self.family(name, ARCHITECTURES[arch].stands_in)
        widest = max(stand_in.bands.values(), key=lambda band: band[1] / band[0])
        return replace(stand_in, bands=dict.fromkeys(stand_in.bands, widest))


def load_file(path: Path) -> Constants:
    """Fitted constants from a file; BadFileError where it holds none."""
    try:
        raw = json.loads(path.read_text())
        if raw["format"] != FORMAT:
            raise BadFileError(f"{path} is in format {raw['format']}, this version reads {FORMAT}")
        return parse(raw)
    except OSError as error:
        raise BadFileError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BadFileError(f"{path} does not hold cost constants: {error!r}") from error


def parse(raw: Mapping[str, Any]) -> Constants:
    """Constants from their JSON form, checked."""
    families = {}
    for name, entry in raw["families"].items():
        serial, overlap = tuple(entry["serial"]), tuple(entry["overlap"])
        for arch, part in entry["arches"].items():
            nodes = {}
            for key, node in part["nodes"].items():
                values = [float(v) for v in node["factors"]]
                nodes[tuple(key.split(SEPARATOR)) if key else ()] = Factors(
                    tuple(values[: len(serial)]),
                    tuple(values[len(serial) :]),
                    int(node["rows"]),
                    int(part["nodes"].get(key.split(SEPARATOR)[0], {"rows": 0})["rows"]),
                )
            if () not in nodes or any(not math.isfinite(f) for f in nodes[()].serial):
                raise ValueError(f"family {name} has no usable root")
            cells = {
                tuple(key.split(SEPARATOR)) if key else (): frozenset((s, c) for s, c in found)
                for key, found in part["cells"].items()
            }
            bands = {n: (float(part["bands"][n][0]), float(part["bands"][n][1])) for n in NOVELTY}
            families[name, arch] = Family(
                float(entry["power"]), serial, overlap, nodes, float(part["largest"]),
                MeasuredCells(cells), bands,
            )  # fmt: skip
    return Constants(families, {k: v for k, v in raw.items() if k != "families"})


_chosen: list[str] = []  # the file that an option named, for the whole process
_listeners: list[Callable[[], None]] = []  # what forgets times of other constants


def on_change(forget: Callable[[], None]) -> None:
    """Call this when other constants come into force."""
    _listeners.append(forget)


def use(path: str) -> None:
    """Constants of the user's own for the whole process, as the option ``cost_data`` names them.

    One process has one file, so that no figure carries the name of another's constants.
    """
    given = str(Path(path).expanduser())
    if given == _in_force():
        return
    if _in_force():
        raise UsageError(
            f"modelled times of this process are those of {_in_force()} already",
            given=f"cost_data={path}",
            try_="another process for other constants",
        )
    load_file(Path(given))  # told before anything is timed with it
    _chosen.append(given)
    constants.cache_clear()
    for forget in _listeners:
        forget()


def _in_force() -> str:
    return _chosen[0] if _chosen else os.environ.get("TEMPER_COST_DATA") or ""


def correction() -> str:
    """The file of the user's own constants (``temper calibrate -o``), by its name; else nothing."""
    return Path(_in_force()).name


@lru_cache(maxsize=1)
def constants() -> Constants:
    """The constants in force; told once where they are not the shipped ones."""
    given = _in_force()
    loaded = load_file(Path(given or DATA))
    if given:
        told = f"modelled times are those of {given} (cost_data), not of the shipped fit"
        warnings.warn(told, stacklevel=2)
    sfpu.use_measured(loaded.meta.get("sfpu_cycles", {}))
    return loaded
