"""What the test tools of tt-torch's repository import from it, and the refusal of ONNX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from temper.errors import UsageError


class ModelMetadata:
    """What a test says of a model; attributes as they are given."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


class OpCompilationStatus(IntEnum):
    """How far the compilation of an op came, in tt-torch's steps."""

    NOT_STARTED = 0
    CREATED_GRAPH = 1
    CONVERTED_TO_TORCH_IR = 2
    CONVERTED_TO_TORCH_BACKEND_IR = 3
    CONVERTED_TO_STABLE_HLO = 4
    CONVERTED_TO_TTIR = 5
    CONVERTED_TO_TTNN = 6
    EXECUTED = 7


class RuntimeIntermediate:
    """One intermediate value and its golden one; Temper's runtime hands out none."""

    def __init__(self, node: Any, golden: Any) -> None:
        self.node = node
        self.golden = golden


def with_torch_dynamo_cleanup(function: Callable[..., Any]) -> Callable[..., Any]:
    """Dynamo's caches are empty again afterwards."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        import torch

        try:
            return function(*args, **kwargs)
        finally:
            torch._dynamo.reset()

    return wrapped


def _no_onnx(*_: Any, **__: Any) -> Any:
    raise UsageError("ONNX models are not read by Temper", try_="the same model in PyTorch")


onnx_output_to_torch = prepare_inference_session = torch_input_to_onnx = _no_onnx
