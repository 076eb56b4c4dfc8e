"""torch_xla.distributed.parallel_loader (usually ``pl``): batches brought to the one chip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from temper.compat.missing import getattr_for

__all__ = ["MpDeviceLoader", "ParallelLoader"]


class MpDeviceLoader:
    """A loader whose tensors are on the device."""

    def __init__(self, loader: Any, device: Any, **_: Any) -> None:
        self._loader = loader
        self._device = device

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            yield pytree.tree_map(self._move, batch)

    def __len__(self) -> int:
        return len(self._loader)

    def _move(self, item: Any) -> Any:
        return item.to(self._device) if isinstance(item, torch.Tensor) else item


class ParallelLoader:
    """One loader for the one device."""

    def __init__(self, loader: Any, devices: Any, **_: Any) -> None:
        self._loader = loader

    def per_device_loader(self, device: Any) -> MpDeviceLoader:
        return MpDeviceLoader(self._loader, device)


__getattr__ = getattr_for(__name__)
