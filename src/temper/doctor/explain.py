"""Explaining an error message: what it means, its arithmetic, three ways out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from temper.chips import CHIPS, Chip
from temper.doctor.messages import MESSAGES

MAX_MESSAGE = 200_000


@dataclass(frozen=True, slots=True)
class Explained:
    """What is shown for one recognised message."""

    name: str
    title: str
    excerpt: str
    means: str
    arithmetic: tuple[str, ...]
    ways: tuple[str, ...]
    source: str

    def as_dict(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


def explain(message: str, chip: Chip) -> list[Explained]:
    """Every known message in the text, the most specific first; empty when none is known."""
    # Logs wrap lines and colour words; a message is matched as one line of plain text.
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", message[:MAX_MESSAGE])
    flat = re.sub(r"\s+", " ", plain).strip()
    found = []
    for known in MESSAGES:
        match = re.search(known.pattern, flat, re.I)
        if match is None:
            continue
        around = flat[max(0, match.start() - 20) : match.end() + 160]
        seen_chip = _chip_of(flat, chip)
        lines = known.arithmetic(flat[match.start() :], seen_chip) if known.arithmetic else []
        found.append(
            Explained(
                known.name,
                known.title,
                around[:240],
                known.means,
                tuple(lines),
                known.ways,
                known.source,
            )
        )
    specific = [item for item in found if not item.name.startswith("other-")]
    return specific or found[:1]


def _chip_of(text: str, default: Chip) -> Chip:
    """The chip that the message's own sizes point at."""
    for chip in CHIPS.values():
        if chip.architecture.sram_measured and str(chip.sram_core_bytes) in text:
            return chip if chip.arch != default.arch else default
    return default


def component(message: str) -> str:
    """Which part of the stack a TT_FATAL or TT_THROW comes from, by its file name."""
    match = re.search(r"TT_(?:FATAL|THROW|ASSERT) @ (\S+?):(\d+)", message)
    if match is None:
        return ""
    path = match.group(1)
    names: Sequence[tuple[str, str]] = (
        ("allocator", "the memory allocator"),
        ("program", "program set-up (circular buffers, kernels)"),
        ("trace", "trace capture"),
        ("dispatch", "command dispatch"),
        ("profiler", "the device profiler"),
        ("umd", "the user-mode driver"),
        ("llrt", "firmware and kernel loading"),
        ("jit_build", "kernel compilation"),
        ("ttnn", "an op's argument check"),
    )
    for part, name in names:
        if part in path:
            return f"{name} ({path.rsplit('/', 1)[-1]}:{match.group(2)})"
    return f"{path.rsplit('/', 1)[-1]}:{match.group(2)}"
