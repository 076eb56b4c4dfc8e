"""forge as tt-forge's PyTorch scripts use it, on the virtual chip."""

from __future__ import annotations

from temper.compat.forge_model import CompiledModel, CompilerConfig, compile
from temper.compat.missing import getattr_for
from temper.compat.pybuda_formats import DataFormat, MathFidelity
from temper.compat.pybuda_module import OnnxModule, Parameter, PyTorchModule, Tensor
from temper.compat.pybuda_module import PyBudaModule as ForgeModule

__version__ = "0.1.0+temper"
__all__ = [
    "CompiledModel", "CompilerConfig", "DataFormat", "ForgeModule", "MathFidelity", "OnnxModule",
    "Parameter", "PyTorchModule", "Tensor", "compile",
]  # fmt: skip
__getattr__ = getattr_for(__name__)
