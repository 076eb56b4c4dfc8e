"""How numbers are shown to people: times, bytes, rates; one way everywhere."""

from __future__ import annotations


def time_text(ns: float) -> str:
    """Three significant digits in the unit that a person would use."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def bytes_text(size: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"


def rate_text(tflops: float) -> str:
    for unit, scale in (("TFLOP/s", 1.0), ("GFLOP/s", 1e3)):
        if tflops * scale >= 1:
            return f"{tflops * scale:.3g} {unit}"
    return f"{tflops * 1e6:.3g} MFLOP/s"
