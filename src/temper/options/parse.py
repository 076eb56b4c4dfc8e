"""Values as tt-xla accepts them (text, numbers, booleans) to typed values."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any

from temper import chips
from temper.errors import UsageError
from temper.formats.names import canonical_fidelity, canonical_format
from temper.options.table import BY_NAME, OPTIONS, Option

_TRUE = {"true", "1", "yes", "on"}
_FALSE = {"false", "0", "no", "off"}
_UNSET = {"", "none", "unset"}


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")


_SPELLINGS = {
    _plain(spelling): option for option in OPTIONS for spelling in (option.name, *option.aliases)
}


def find(name: str) -> Option:
    """The option of that name; dashes, underscores and aliases are the same."""
    option = _SPELLINGS.get(_plain(name))
    if option is None:
        near = difflib.get_close_matches(_plain(name), list(_SPELLINGS), n=3, cutoff=0.5)
        raise UsageError(
            f"unknown compile option {name!r}",
            try_=near or None,
            see="'temper options' lists all of them",
        )
    return option


def parse(option: Option, value: Any) -> Any:
    """The typed value, or a UsageError that says what is allowed."""
    if value is None:
        return option.default
    try:
        return _PARSERS[option.kind](option, value)
    except (ValueError, TypeError, AttributeError):
        raise UsageError(
            f"compile option {option.name} cannot be {value!r}", allowed=option.allowed
        ) from None


def _bool(option: Option, value: Any) -> bool:
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError


def _number(option: Option, value: Any) -> int | float:
    if isinstance(value, bool):
        raise ValueError
    number: int | float = int(str(value).strip()) if option.kind == "int" else float(value)
    low, high = option.minimum, option.maximum
    if not math.isfinite(number):
        raise ValueError
    if (low is not None and number < low) or (high is not None and number > high):
        raise ValueError
    return number


def _choice(option: Option, value: Any) -> str:
    text = str(value).strip().lower()
    for choice in option.choices:
        if text == choice.lower():
            return choice
    raise ValueError


def _format(option: Option, value: Any) -> str:
    text = str(value).strip()
    if text.lower() in _UNSET and "" in option.choices:
        return ""
    if text.lower() == "auto" and "auto" in option.choices:
        return "auto"
    try:
        name = canonical_format(text)
    except UsageError:
        raise ValueError from None
    if name not in option.choices:
        raise ValueError
    return name


def _fidelity(option: Option, value: Any) -> str:
    text = str(value).strip()
    if text.lower() in _UNSET | {"undefined"}:
        return ""
    if _plain(text) == "ttnn_default":
        return "ttnn_default"
    try:
        return canonical_fidelity(text)
    except UsageError:
        raise ValueError from None


def _chip(option: Option, value: Any) -> str:
    return chips.get(str(value)).name


def _text(option: Option, value: Any) -> str:
    return str(value)


def _overrides(option: Option, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(pattern): canonical_format(str(fmt)) for pattern, fmt in value.items()}
    return str(value)


_PARSERS = {
    "bool": _bool,
    "int": _number,
    "float": _number,
    "choice": _choice,
    "format": _format,
    "fidelity": _fidelity,
    "chip": _chip,
    "text": _text,
    "overrides": _overrides,
}

__all__ = ["BY_NAME", "find", "parse"]
