"""pybuda.op.nn: the operators of networks, and modules that hold their parameters."""

from __future__ import annotations

import math
from typing import Any

import torch

from temper.compat.missing import getattr_for
from temper.compat.pybuda_module import PyBudaModule

from . import (
    AvgPool2d,
    Batchnorm,
    Conv2d,
    Layernorm,
    LogSoftmax,
    Matmul,
    MaxPool2d,
    Softmax,
)

__all__ = [
    "AvgPool2dModule", "Batchnorm", "Conv2dModule", "Layernorm", "Linear", "LogSoftmax",
    "MaxPool2dModule", "Softmax",
]  # fmt: skip


class _Weighted(PyBudaModule):
    """``weights`` and ``bias`` as torch initialises its layers."""

    def __init__(self, name: str, shape: tuple[int, ...], fan_in: int, bias_size: int) -> None:
        super().__init__(name)
        self.weights = torch.nn.Parameter(torch.empty(shape))
        torch.nn.init.kaiming_uniform_(self.weights, a=math.sqrt(5))
        bound = 1 / math.sqrt(fan_in)
        made = torch.empty(bias_size).uniform_(-bound, bound) if bias_size else None
        self.bias = None if made is None else torch.nn.Parameter(made)


class Linear(_Weighted):
    def __init__(self, name: str, in_features: int, out_features: int, bias: bool = True) -> None:
        shape = (in_features, out_features)
        super().__init__(name, shape, in_features, out_features if bias else 0)

    def forward(self, activations: Any) -> Any:
        return Matmul(self.name, activations, self.weights, bias=self.bias)


class Conv2dModule(_Weighted):
    def __init__(
        self, name: str, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
        padding: Any = "same", dilation: Any = 1, groups: int = 1, bias: bool = True, **_: Any,
    ) -> None:  # fmt: skip
        kernel = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
        shape = (out_channels, in_channels // groups, *kernel)
        super().__init__(name, shape, math.prod(shape[1:]), out_channels if bias else 0)
        self.attributes = {
            "stride": stride, "padding": padding, "dilation": dilation, "groups": groups,
        }  # fmt: skip

    def forward(self, activations: Any) -> Any:
        return Conv2d(self.name, activations, self.weights, bias=self.bias, **self.attributes)


class MaxPool2dModule(PyBudaModule):
    pool = staticmethod(MaxPool2d)

    def __init__(self, name: str, kernel_size: Any, **attributes: Any) -> None:
        super().__init__(name)
        self.attributes = {"kernel_size": kernel_size, **attributes}

    def forward(self, activations: Any) -> Any:
        return self.pool(self.name, activations, **self.attributes)


class AvgPool2dModule(MaxPool2dModule):
    pool = staticmethod(AvgPool2d)


__getattr__ = getattr_for(__name__)
