"""Settings of the host process that keep replays fast: the C heap and OpenMP's waiting."""

from __future__ import annotations

import os
import sys

# glibc's mallopt parameters (malloc.h).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# Blocks below 1 GiB come from the heap, which is never given back below 2 GiB of slack. By default
# glibc maps and unmaps every big tensor, and a page fault costs seven times the copy of its page:
# cloning 64 MB ran at 1.8 GB/s fresh and 14.6 GB/s in reused memory.
_MMAP_THRESHOLD_BYTES = 1 << 30
_TRIM_THRESHOLD_BYTES = (1 << 31) - 1
# A thread that waits for work spins this often before it sleeps. Without a limit one competing
# process took a small decoder from 155 to 1240 ms; with it, 225 ms, and no cost when quiet.
_SPIN_COUNT = "2000"

_heap_kept = False


def limit_spinning() -> None:
    """Ask OpenMP to spin briefly; works only before torch is loaded, and never overrides users."""
    if "torch" in sys.modules or "GOMP_SPINCOUNT" in os.environ:
        return
    if not any(name.startswith("OMP_") for name in os.environ):
        os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT


def keep_heap() -> None:
    """Let freed tensors stay on the heap, once a process; off with TEMPER_KEEP_HEAP=0."""
    global _heap_kept
    if _heap_kept or os.environ.get("TEMPER_KEEP_HEAP") == "0":
        return
    _heap_kept = True
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # not glibc
        return
    mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)


def trim_heap() -> None:
    """Give pages of the heap that hold nothing back to the system; costs milliseconds."""
    import ctypes

    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):  # not glibc
        return
    trim(0)
