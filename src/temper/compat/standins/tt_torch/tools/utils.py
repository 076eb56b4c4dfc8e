"""tt_torch.tools.utils: the compiler configuration and two measures."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.tt_torch_config import CompileDepth, CompilerConfig, OpByOpBackend
from temper.compat.tt_torch_verify import calculate_atol, calculate_pcc

__all__ = ["CompileDepth", "CompilerConfig", "OpByOpBackend", "calculate_atol", "calculate_pcc"]
__getattr__ = getattr_for(__name__)
