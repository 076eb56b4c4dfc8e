"""tt_torch.onnx_compile: ONNX models, which Temper does not read."""

from __future__ import annotations

from typing import Any

from temper.compat.missing import getattr_for
from temper.errors import UsageError

__all__ = ["compile_onnx"]


def compile_onnx(*_: Any, **__: Any) -> Any:
    raise UsageError("ONNX models are not read by Temper", try_="the same model in PyTorch")


__getattr__ = getattr_for(__name__)
