"""What a check reports: level, what was seen, what is expected, why, how to fix, source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# From harmless to grave. "manual" cannot be read from software; "note" informs and never fails.
LEVELS = ("ok", "manual", "note", "warning", "problem")


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation of one check."""

    check: str
    topic: str
    level: str
    seen: str
    expected: str = ""
    why: str = ""
    fix: str = ""
    source: str = ""
    card: str = ""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"level {self.level!r} is none of {LEVELS}")

    def as_dict(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings of one examination, in the order of the checks."""

    machine: str
    cards: tuple[str, ...]
    findings: tuple[Finding, ...]

    def count(self, level: str) -> int:
        return sum(finding.level == level for finding in self.findings)

    def of(self, *levels: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.level in levels]

    def exit_code(self, fail_on: str = "problem") -> int:
        """1 when any finding is at least as grave as ``fail_on``, else 0."""
        limit = LEVELS.index(fail_on)
        return int(any(LEVELS.index(finding.level) >= limit for finding in self.findings))

    def as_dict(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "cards": list(self.cards),
            "ready": self.exit_code() == 0,
            "counts": {level: self.count(level) for level in LEVELS},
            "findings": [finding.as_dict() for finding in self.findings],
        }
