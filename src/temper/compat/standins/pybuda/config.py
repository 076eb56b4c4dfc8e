"""pybuda.config: the compiler configuration, and orders for single ops."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.pybuda_config import CompilerConfig, set_configuration_options
from temper.compat.pybuda_config import global_compiler_config as _get_global_compiler_config
from temper.compat.pybuda_config import reset_configuration as _clear_global_compiler_config
from temper.compat.pybuda_formats import CompileDepth, DataFormat, MathFidelity, PerfTraceLevel
from temper.compat.pybuda_overrides import OVERRIDES

globals().update(OVERRIDES)
__all__ = [  # noqa: PLE0604 - all are strings
    "CompileDepth", "CompilerConfig", "DataFormat", "MathFidelity", "PerfTraceLevel",
    "_clear_global_compiler_config", "_get_global_compiler_config", "set_configuration_options",
    *OVERRIDES,
]  # fmt: skip
__getattr__ = getattr_for(__name__)
