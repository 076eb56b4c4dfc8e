"""Two small measurements of the host: memory copy rate and how late a sleeping thread wakes."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Measured GB/s of bytes copied, into memory already touched and into fresh memory."""

    reused_gbps: float
    fresh_gbps: float


def measure_memory(size_bytes: int = 64 << 20, repeats: int = 5) -> HostMemory:
    """Best of a few copies; about a fifth of a second."""
    import numpy as np  # only this measurement needs it

    source = np.ones(size_bytes, dtype=np.uint8)
    target = np.zeros_like(source)

    def best(copy_fresh: bool) -> float:
        fastest = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            if copy_fresh:
                source.copy()  # page faults included: what every new host buffer costs
            else:
                np.copyto(target, source)
            fastest = min(fastest, time.perf_counter() - start)
        return size_bytes / fastest / 1e9

    return HostMemory(best(False), best(True))


def measure_wake_us(repeats: int = 200) -> float:
    """Median microseconds by which a 50 us sleep is late: load, governor and deep idle states."""
    late = []
    for _ in range(repeats):
        start = time.perf_counter()
        time.sleep(50e-6)
        late.append((time.perf_counter() - start) * 1e6 - 50)
    return sorted(late)[len(late) // 2]
