"""pybuda._C: where PyBuda keeps its enumerations."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.pybuda_config import BackendDevice, BackendType, DataFormat, MathFidelity

__all__ = ["BackendDevice", "BackendType", "DataFormat", "MathFidelity"]
__getattr__ = getattr_for(__name__)
