"""forge.config: the compiler configuration."""

from __future__ import annotations

from temper.compat.forge_model import CompilerConfig, MLIRConfig
from temper.compat.missing import getattr_for
from temper.compat.pybuda_formats import DataFormat, MathFidelity

__all__ = ["CompilerConfig", "DataFormat", "MLIRConfig", "MathFidelity"]
__getattr__ = getattr_for(__name__)
