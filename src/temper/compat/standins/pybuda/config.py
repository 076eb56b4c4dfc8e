"""pybuda.config: the compiler configuration."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.pybuda_config import (
    CompilerConfig,
    DataFormat,
    MathFidelity,
    set_configuration_options,
)
from temper.compat.pybuda_config import global_compiler_config as _get_global_compiler_config

__all__ = [
    "CompilerConfig", "DataFormat", "MathFidelity", "_get_global_compiler_config",
    "set_configuration_options",
]  # fmt: skip
__getattr__ = getattr_for(__name__)
