"""tt_torch.tools.utils: the compiler configuration, two measures, and what test tools import."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.tt_torch_config import CompileDepth, CompilerConfig, OpByOpBackend
from temper.compat.tt_torch_testing import (
    OpCompilationStatus,
    RuntimeIntermediate,
    onnx_output_to_torch,
    prepare_inference_session,
    torch_input_to_onnx,
    with_torch_dynamo_cleanup,
)
from temper.compat.tt_torch_verify import calculate_atol, calculate_pcc

__all__ = [
    "CompileDepth", "CompilerConfig", "OpByOpBackend", "OpCompilationStatus",
    "RuntimeIntermediate", "calculate_atol", "calculate_pcc", "onnx_output_to_torch",
    "prepare_inference_session", "torch_input_to_onnx", "with_torch_dynamo_cleanup",
]  # fmt: skip
__getattr__ = getattr_for(__name__)
