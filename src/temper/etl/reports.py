"""What a run tells: how far it is, and what it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Progress:
    """How far a run is; rows and bytes are counted, seconds measured."""

    stage: str
    rows: int
    bytes_done: int
    bytes_total: int
    seconds: float


@dataclass(frozen=True)
class Report:
    """What a run did. Times are measured on this host."""

    rows: int
    bytes_in: int
    seconds: float
    parts: tuple[str, ...]
    malformed: Mapping[str, int]
    examples: tuple[str, ...]
    unseen: Mapping[str, int]
    vocabulary_sizes: Mapping[str, int]
    resumed: bool = False  # an earlier run had done a part of it
    finished_before: bool = False  # and all of it, so that nothing was done now

    @property
    def gbps(self) -> float | None:
        """Measured; None where an earlier run did a part, which took time that is not known."""
        return None if self.resumed or not self.seconds else self.bytes_in / self.seconds / 1e9

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "gbps_measured": self.gbps}
