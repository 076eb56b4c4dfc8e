"""Compile options: one table, merged from call, process, environment, file, level and default."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from temper.errors import UsageError
from temper.options.parse import find, parse
from temper.options.settings_file import settings
from temper.options.table import BY_NAME, OPTIONS, Option

__all__ = [
    "OPTIONS",
    "Option",
    "OptionValue",
    "Options",
    "clear_custom_compile_options",
    "get_custom_compile_options",
    "resolve",
    "set_custom_compile_options",
    "unless_set",
]

_process: dict[str, Any] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class OptionValue:
    """A resolved value and where it came from."""

    value: Any
    origin: str


class Options(Mapping[str, Any]):
    """Resolved options; ``opts["chip"]`` is the value, ``opts.origin("chip")`` where it is from."""

    def __init__(self, values: Mapping[str, OptionValue]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[find(name).name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def origin(self, name: str) -> str:
        return self._values[find(name).name].origin

    def explicit(self, name: str) -> bool:
        """Whether a person set it, rather than a level or a default."""
        origin = self.origin(name)
        return origin != "default" and not origin.startswith("level")

    def changed(self) -> dict[str, Any]:
        """The values that a person set."""
        return {name: v.value for name, v in self._values.items() if self.explicit(name)}

    def provenance(self) -> dict[str, dict[str, Any]]:
        """Every value with its origin, for reports."""
        return {n: {"value": v.value, "from": v.origin} for n, v in self._values.items()}

    def replace(self, **changes: Any) -> Options:
        """The same explicit settings with some changed; level defaults follow."""
        explicit = {n: (v.value, v.origin) for n, v in self._values.items() if self.explicit(n)}
        for name, value in changes.items():
            option = find(name)
            explicit[option.name] = (parse(option, value), "replace()")
        return _merge(explicit)


def set_custom_compile_options(options: Mapping[str, Any]) -> None:
    """Set options for every later compile of this process; values may be text, as in tt-xla."""
    parsed = _parse_all(options)
    with _lock:
        _process.update(parsed)


def get_custom_compile_options() -> dict[str, Any]:
    """What set_custom_compile_options has set so far."""
    with _lock:
        return dict(_process)


def clear_custom_compile_options() -> None:
    """Forget what set_custom_compile_options has set."""
    with _lock:
        _process.clear()


def resolve(options: Mapping[str, Any] | None = None) -> Options:
    """Merge, strongest first: call, process, environment, settings file, level, default."""
    kept = settings()
    explicit: dict[str, tuple[Any, str]] = {
        name: (value, str(kept.path)) for name, value in kept.values.items()
    }
    for option in OPTIONS:
        text = os.environ.get(option.env) if option.env else None
        if text:
            explicit[option.name] = (parse(option, text), f"environment {option.env}")
    for name, value in get_custom_compile_options().items():
        explicit[name] = (value, "set_custom_compile_options")
    for name, value in _parse_all(options or {}).items():
        explicit[name] = (value, "options")
    return _merge(explicit)


def unless_set(preferred: Mapping[str, Any]) -> dict[str, Any]:
    """A command's own defaults, without those that a person has set somewhere."""
    resolved = resolve()
    return {name: value for name, value in preferred.items() if not resolved.explicit(name)}


def _parse_all(options: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(options, Mapping):
        raise UsageError(f"compile options must be a mapping, not {type(options).__name__}")
    parsed: dict[str, Any] = {}
    for name, value in options.items():
        option = find(str(name))
        if option.name in parsed:
            raise UsageError(f"compile option {option.name} is given twice, as {name!r} too")
        parsed[option.name] = parse(option, value)
    return parsed


def _merge(explicit: Mapping[str, tuple[Any, str]]) -> Options:
    level = explicit.get("optimization_level", (BY_NAME["optimization_level"].default, ""))[0]
    values: dict[str, OptionValue] = {}
    for option in OPTIONS:
        if option.name in explicit:
            values[option.name] = OptionValue(*explicit[option.name])
        elif level in option.levels:
            values[option.name] = OptionValue(option.levels[level], f"level {level}")
        else:
            values[option.name] = OptionValue(option.default, "default")
    backend = values["backend"].value
    if backend == "codegen_py" and not values["export_path"].value:
        raise UsageError("backend=codegen_py writes a script", needs="export_path=DIR")
    if backend in ("codegen_cpp", "codegen_load_py"):
        raise UsageError(
            f"backend={backend} is not offered",
            try_=["backend=codegen_py with export_path=DIR for a Python script", "backend=default"],
        )
    return Options(values)
