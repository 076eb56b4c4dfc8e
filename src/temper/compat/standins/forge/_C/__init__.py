"""forge._C: enumerations, and the runtime's settings."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.pybuda_formats import DataFormat, MathFidelity

from . import runtime

__all__ = ["DataFormat", "MathFidelity", "runtime"]
__getattr__ = getattr_for(__name__)
