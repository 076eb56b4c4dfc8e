"""What is not a kernel file: Python, packages, environment variables, disk, access rights."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PACKAGES = ("torch", "ttnn", "tt-smi", "tt-umd", "pyluwen", "tt-flash", "pjrt-plugin-tt", "pybuda")
# Only variables with these beginnings are looked at, so a capture carries no one's secrets.
ENVIRONMENT = ("ARCH_NAME", "TT_", "TTXLA_", "TTNN_", "PYBUDA_", "TTMLIR_", "WH_ARCH_YAML")


@dataclass(frozen=True)
class HostFacts:
    """Facts of the process or, in a capture, of the process that made it."""

    known: bool = False
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    existing_paths: tuple[str, ...] = ()  # of the directories that variables name
    cpus: int = 0
    disk_free_bytes: int | None = None
    home: str = ""
    access: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)  # name -> status if not ok

    @classmethod
    def of_this_process(cls) -> HostFacts:
        environment = {
            name: value for name, value in os.environ.items() if name.startswith(ENVIRONMENT)
        }
        home = os.path.expanduser("~")
        return cls(
            known=True,
            python=".".join(str(part) for part in sys.version_info[:3]),
            packages=_package_versions(),
            environment=environment,
            existing_paths=tuple(
                value for value in environment.values() if value[:1] == "/" and os.path.isdir(value)
            ),
            cpus=_usable_cpus(),
            disk_free_bytes=_free_bytes(home),
            home=home,
        )

    @classmethod
    def from_json(cls, text: str) -> HostFacts:
        """Tolerant: a missing, foreign or damaged file gives unknown facts, never an error."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(data, dict):
            return cls()
        free = data.get("disk_free_bytes")
        cpus = data.get("cpus")
        paths = data.get("existing_paths")
        return cls(
            known=True,
            python=_text(data.get("python")),
            packages=_text_mapping(data.get("packages")),
            environment=_text_mapping(data.get("environment")),
            existing_paths=tuple(p for p in paths if isinstance(p, str))
            if isinstance(paths, list)
            else (),
            cpus=cpus if isinstance(cpus, int) and 0 < cpus < 65536 else 0,
            disk_free_bytes=free if isinstance(free, int) and free >= 0 else None,
            home=_text(data.get("home")),
            access=_text_mapping(data.get("access")),
            commands=_text_mapping(data.get("commands")),
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "python": self.python,
            "packages": dict(self.packages),
            "environment": dict(self.environment),
            "existing_paths": list(self.existing_paths),
            "cpus": self.cpus,
            "disk_free_bytes": self.disk_free_bytes,
            "home": self.home,
            "access": dict(self.access),
            "commands": dict(self.commands),
        }


def _package_versions() -> dict[str, str]:
    """Versions from the names of dist-info folders: importing importlib.metadata costs more."""
    wanted = {_normal(package): package for package in PACKAGES}
    found: dict[str, str] = {}
    for place in sys.path:
        try:
            names = os.listdir(place or ".")
        except OSError:
            continue
        for name in names:
            stem, _, ending = name.rpartition(".")
            package, _, version = stem.partition("-")
            if ending == "dist-info" and _normal(package) in wanted:
                found.setdefault(wanted[_normal(package)], version)
    return found


def _normal(package: str) -> str:
    return package.lower().replace("-", "_").replace(".", "_")


def _usable_cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 0


def _free_bytes(path: str) -> int | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _text_mapping(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {k: v for k, v in value.items() if isinstance(k, str) and isinstance(v, str)}
