"""Version numbers: reading them tolerantly, and the ones that the stack asks for."""

from __future__ import annotations

import re

Version = tuple[int, ...]

# tt-umd kmd_versions.hpp. What one architecture asks for stands in its record (chips/).
DRIVER_MIN = (2, 0, 0)
DRIVER_MIN_TT_SMI = (1, 27)
KERNEL_MIN = (5, 4)
TORCH = ((2, 13), (2, 15))  # from, below: what this package is tested with
TTNN_MIN = (0, 81)
TTNN_PYTHONS = ((3, 10), (3, 12))  # wheels of ttnn 0.81.1 on the package index


def parse(text: str | None) -> Version | None:
    """``"TT-KMD 2.10.1-pre"`` -> (2, 10, 1); None when no number is in it."""
    found = re.search(r"\d{1,6}(?:\.\d{1,6}){0,4}", text or "")
    return tuple(int(part) for part in found.group().split(".")) if found else None


def parse_bundle(text: str | None) -> Version | None:
    """A firmware bundle as dotted text or as a 32-bit word with one byte a part.

    Wormhole bundles before 18 carry a leading 80 (80.17.0.0 is 17.0.0); Grayskull keeps it.
    """
    if not text:
        return None
    word = text.strip()
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}", word) or re.fullmatch(r"\d{6,10}", word):
        value = int(word, 16 if word[:2].lower() == "0x" else 10)
        return tuple((value >> shift) & 0xFF for shift in (24, 16, 8, 0))
    return parse(word)


def drop_legacy_prefix(version: Version) -> Version:
    """Firmware 80.18 was the name of 18 once."""
    return version[1:] if version[0] == 80 and len(version) > 1 else version


def show(version: Version) -> str:
    """A version as people write it."""
    return ".".join(str(part) for part in version)
