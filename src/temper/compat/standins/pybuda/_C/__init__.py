"""pybuda._C: where PyBuda keeps its enumerations, their members by themselves too."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.pybuda_formats import BackendDevice, BackendType, DataFormat, MathFidelity

k_dim = -9  # PyBuda's mark for the inner dimension of a matmul
__all__ = [  # noqa: PLE0604 - all are strings
    "BackendDevice", "BackendType", "DataFormat", "MathFidelity", "k_dim",
    *(item.name for item in (*DataFormat, *MathFidelity) if item.name != "Invalid"),
]  # fmt: skip
globals().update({item.name: item for item in (*DataFormat, *MathFidelity)})
__getattr__ = getattr_for(__name__)
