"""One way to run an op: the memory that its operands must lie in and where its results go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from temper.program.conv_config import ConvConfig
from temper.program.tensor import DRAM, Memory, ceil_div

Need = Memory | Literal["interleaved", "dram"]

ANY: Need = "interleaved"
DRAM_ONLY: Need = "dram"


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to run an op. ``halo`` asks for a halo op between the first operand and the op."""

    name: str
    inputs: tuple[Need, ...]
    outputs: tuple[Memory, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    halo: ConvConfig | None = None
    moved: bool = False  # the halo is moved up before the op runs


def accepts(need: Need, memory: Memory) -> bool:
    """Whether a tensor there can be read without moving it; the host's are uploaded anyway."""
    if memory.buffer == "host":
        return True
    if need == "interleaved":
        return not memory.sharded
    if need == "dram":
        return memory == DRAM
    return memory == need


def line(cores: int, across: int) -> tuple[int, int]:
    """Cores in reading order: one row, or whole rows of which the last may be partly idle."""
    return (cores, 1) if cores <= across else (across, ceil_div(cores, across))
