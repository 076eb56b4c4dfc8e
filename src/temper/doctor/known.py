"""What is known of one kind of error message, and finding numbers in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from temper.chips import Chip

Arithmetic = Callable[[str, Chip], list[str]]


@dataclass(frozen=True, slots=True)
class Known:
    """One kind of message: how to recognise it and what to say of it."""

    name: str
    pattern: str
    title: str
    means: str
    ways: tuple[str, str, str]
    source: str
    arithmetic: Arithmetic | None = None


def number_after(text: str, *patterns: str) -> int | None:
    """The first integer that one of the patterns captures."""
    for pattern in patterns:
        match = re.search(pattern, text, re.I)
        if match:
            return int(match.group(1))
    return None


def grouped(value: int) -> str:
    """A number with a space between thousands."""
    return f"{value:,}".replace(",", " ")
