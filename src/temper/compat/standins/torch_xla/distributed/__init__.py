"""torch_xla.distributed: spawning, loading and meshes for one chip."""

from __future__ import annotations

from temper.compat.missing import getattr_for

from . import parallel_loader, spmd, xla_multiprocessing

__all__ = ["parallel_loader", "spmd", "xla_multiprocessing"]
__getattr__ = getattr_for(__name__)
