"""pybuda.tensor: tensors from PyTorch's."""

from __future__ import annotations

from typing import Any

from temper.compat.missing import getattr_for
from temper.compat.pybuda_module import Tensor

__all__ = ["Tensor", "TensorFromPytorch"]


def TensorFromPytorch(tensor: Any, dev_data_format: Any = None, constant: bool = False) -> Tensor:
    return Tensor.create_from_torch(tensor, constant, dev_data_format)


__getattr__ = getattr_for(__name__)
