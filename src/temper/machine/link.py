"""Generations of a PCIe link from what sysfs calls its speed."""

from __future__ import annotations

import re

GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


def generation(text: str | None) -> int | None:
    """``"16.0 GT/s PCIe"`` -> 4."""
    found = re.match(r"(\d+(?:[.,]\d+)?)\s*GT/s", text or "")
    return GENERATIONS.get(float(found.group(1).replace(",", "."))) if found else None
