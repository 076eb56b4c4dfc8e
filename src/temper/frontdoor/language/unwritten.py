"""Tensors that nobody writes: shapes to be costed, of models that no host could hold."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

import torch

# Linux's, and named by Python from 3.13 on: pages that were promised count nowhere.
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def unwritten(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """An empty tensor in memory of its own, which goes back to the system with it.

    On the C heap, where ``process.keep_heap`` keeps large blocks, whatever is allocated above the
    caches of one costed model would keep them: a process with tens of GB of address space, which
    the system refuses to fork.
    """
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    try:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
        memory = mmap.mmap(-1, size, flags=flags)
    except (AttributeError, OSError, ValueError):  # no such flags on this system
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype).view(*shape)
