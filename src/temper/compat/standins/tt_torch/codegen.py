"""tt_torch.codegen: Temper writes no code; it exports the program that it would run."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.tt_torch_export import codegen_cpp, codegen_py

__all__ = ["codegen_cpp", "codegen_py"]
__getattr__ = getattr_for(__name__)
