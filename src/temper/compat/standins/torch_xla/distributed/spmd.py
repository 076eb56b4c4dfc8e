"""torch_xla.distributed.spmd (usually ``xs``): meshes of the one chip, where nothing is split."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from temper.compat.missing import getattr_for
from temper.errors import UsageError

__all__ = [
    "Mesh", "ShardingType", "clear_sharding", "get_1d_mesh", "get_global_mesh", "mark_sharding",
    "set_global_mesh",
]  # fmt: skip


class ShardingType(IntEnum):
    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    TILED = 3
    MANUAL = 4
    PARTIAL = 5


class Mesh:
    """Devices in a grid with named axes; of one device each."""

    def __init__(
        self, device_ids: Any, mesh_shape: Sequence[int], axis_names: Sequence[str] | None = None
    ) -> None:
        if math.prod(mesh_shape) != 1 or len(device_ids) != 1:
            raise UsageError(
                f"a mesh of {len(device_ids)} devices in shape {tuple(mesh_shape)}: Temper models "
                "a single chip",
                try_="a shape of ones, as xr.global_runtime_device_count() gives it",
            )
        self.device_ids = device_ids
        self.mesh_shape = tuple(mesh_shape)
        self.axis_names = tuple(axis_names or (str(axis) for axis in range(len(mesh_shape))))

    def size(self) -> int:
        return 1

    def shape(self) -> OrderedDict[str, int]:
        return OrderedDict(zip(self.axis_names, self.mesh_shape, strict=False))

    def get_logical_mesh(self) -> Any:
        import numpy

        return numpy.asarray(self.device_ids).reshape(self.mesh_shape)


_mesh: list[Mesh] = []


def set_global_mesh(mesh: Mesh) -> None:
    _mesh[:] = [mesh]


def get_global_mesh() -> Mesh | None:
    return _mesh[0] if _mesh else None


def get_1d_mesh(axis_name: str | None = None) -> Mesh:
    return Mesh([0], (1,), None if axis_name is None else (axis_name,))


def mark_sharding(t: Any, mesh: Mesh, partition_spec: Any, *_: Any, **__: Any) -> Any:
    """Split over one device is whole."""
    return t


def clear_sharding(t: Any) -> Any:
    return t


__getattr__ = getattr_for(__name__)
