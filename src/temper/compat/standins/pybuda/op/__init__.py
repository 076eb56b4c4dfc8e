"""pybuda.op: PyBuda's operators by name, each one torch function; the first argument is a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from temper.compat.missing import getattr_for


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    def operator(name: str, *operands: Any, **attributes: Any) -> Any:
        return function(*operands, **attributes)

    return operator


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    return _named(lambda x, dim: function(x, dim=dim, keepdim=True))


Abs = _named(torch.abs)
Add = _named(torch.add)
Clip = _named(torch.clamp)
Concatenate = _named(lambda *xs, axis: torch.cat(xs, dim=axis))
Cosine = _named(torch.cos)
Embedding = _named(lambda table, ids: functional.embedding(ids, table))
Exp = _named(torch.exp)
Gelu = _named(lambda x, approximate="none": functional.gelu(x, approximate=approximate))
Greater = _named(lambda a, b: torch.gt(a, b).to(a.dtype))
Less = _named(lambda a, b: torch.lt(a, b).to(a.dtype))
Log = _named(torch.log)
Matmul = _named(lambda a, b, bias=None: a @ b if bias is None else a @ b + bias)
Max = _named(torch.maximum)
Min = _named(torch.minimum)
Multiply = _named(torch.mul)
Pow = _named(torch.pow)
Reciprocal = _named(torch.reciprocal)
ReduceAvg = _reduce(torch.mean)
ReduceSum = _reduce(torch.sum)
Relu = _named(functional.relu)
Reshape = _named(lambda x, shape: x.reshape(shape))
Sigmoid = _named(torch.sigmoid)
Sine = _named(torch.sin)
Sqrt = _named(torch.sqrt)
Subtract = _named(torch.sub)
Tanh = _named(torch.tanh)
Transpose = _named(lambda x, dim0, dim1: x.transpose(dim0, dim1))

__all__ = sorted(name for name in vars() if name[0].isupper() and name != "Callable")  # noqa: PLE0605
__getattr__ = getattr_for(__name__)
