"""pybuda.op: PyBuda's operators by name, each one torch function; the first argument is a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from temper.compat.missing import getattr_for


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    def operator(name: str = "", *operands: Any, **attributes: Any) -> Any:
        by_name = [attributes.pop(key) for key in ("operandA", "operandB") if key in attributes]
        return function(*by_name, *operands, **attributes)

    return operator


def _compare(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """PyBuda's comparisons give numbers of the operand's type."""
    return _named(lambda a, b: function(a, b).to(a.dtype))


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    return _named(lambda x, dim, stride=-1, keep_dim=True: function(x, dim=dim, keepdim=keep_dim))


def _same(padding: Any, kernel: Any) -> Any:
    """ "same" pads half the kernel; four numbers are left, right, top, bottom."""
    if padding == "same":
        return [size // 2 for size in kernel]
    if isinstance(padding, (list, tuple)) and len(padding) == 4:
        return [padding[2], padding[0]]
    return padding


def _conv2d(x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = "same",
            dilation: Any = 1, groups: int = 1, **_: Any) -> Any:  # fmt: skip
    padding = _same(padding, weight.shape[-2:])
    return functional.conv2d(x, weight, bias, stride, padding, dilation, groups)


def _pool2d(function: Callable[..., Any], *known: str) -> Callable[..., Any]:
    def pool(
        x: Any, kernel_size: Any, stride: Any = 1, padding: Any = "same", **others: Any
    ) -> Any:
        sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else kernel_size
        kept = {name: value for name, value in others.items() if name in known}
        return function(x, kernel_size, stride, _same(padding, sizes), **kept)

    return _named(pool)


def _layernorm(x: Any, weights: Any, bias: Any, dim: int = -1, epsilon: float = 1e-5) -> Any:
    if dim in (-1, x.dim() - 1):
        return functional.layer_norm(x, x.shape[-1:], None, None, epsilon) * weights + bias
    centred = x - x.mean(dim, keepdim=True)
    deviation = torch.sqrt((centred * centred).mean(dim, keepdim=True) + epsilon)
    return centred / deviation * weights + bias


def _index(x: Any, dim: int, start: int, stop: int | None = None, stride: int = 1) -> Any:
    stop = start + 1 if stop is None else stop
    stop = stop + x.shape[dim] if stop < 0 else stop
    return x.index_select(dim, torch.arange(start, stop, stride, device=x.device))


def _select(x: Any, dim: int, index: Any, stride: int = 0) -> Any:
    start, length = (index, 1) if isinstance(index, int) else index
    size = x.shape[dim]
    places = [at + i for at in range(start, size, stride or size) for i in range(length)]
    return x.index_select(dim, torch.tensor(places, device=x.device))


Abs = _named(torch.abs)
Add = _named(torch.add)
AdvIndex = _named(lambda x, ids, dim=0: x.index_select(dim, ids.reshape(-1)))
Argmax = _named(lambda x, dim=None: torch.argmax(x, dim=dim))
AvgPool2d = _pool2d(functional.avg_pool2d, "ceil_mode", "count_include_pad", "divisor_override")
Batchnorm = _named(
    lambda x, weights, bias, running_mean, running_var, epsilon=1e-5: functional.batch_norm(
        x, running_mean, running_var, weights, bias, eps=epsilon
    )
)
Broadcast = _named(
    lambda x, dim, shape: x.expand([shape if d == dim % x.dim() else -1 for d in range(x.dim())])
)
Buffer = Identity = _named(lambda x, **_: x)
Clip = _named(torch.clamp)
Concatenate = _named(lambda *xs, axis: torch.cat(xs, dim=axis))
Constant = _named(lambda constant: torch.tensor(float(constant)))
Conv2d = _named(_conv2d)
Cosine = _named(torch.cos)
CumSum = _named(lambda x, axis, exclusive=False: torch.cumsum(x, dim=axis))
Divide = _named(torch.div)
Dropout = _named(lambda x, **_: x)  # inference
Embedding = _named(lambda table, ids: functional.embedding(ids, table))
Equal = _compare(torch.eq)
Exp = _named(torch.exp)
Gelu = _named(lambda x, approximate="none": functional.gelu(x, approximate=approximate))
Greater = _compare(torch.gt)
GreaterEqual = _compare(torch.ge)
Heaviside = _named(torch.heaviside)
Index = _named(_index)
Layernorm = _named(_layernorm)
LeakyRelu = _named(lambda x, alpha=0.01: functional.leaky_relu(x, negative_slope=alpha))
Less = _compare(torch.lt)
LessEqual = _compare(torch.le)
Log = _named(torch.log)
LogicalAnd = _compare(torch.logical_and)
LogicalNot = _named(lambda x: torch.logical_not(x).to(x.dtype))
LogSoftmax = _named(lambda x, dim, stable=True: functional.log_softmax(x, dim=dim))
Matmul = _named(lambda a, b, bias=None: a @ b if bias is None else a @ b + bias)
Max = _named(torch.maximum)
MaxPool2d = _pool2d(functional.max_pool2d, "dilation", "ceil_mode")
Min = _named(torch.minimum)
Multiply = _named(torch.mul)
Narrow = _named(lambda x, dim, start, length, original_length=0: x.narrow(dim, start, length))
NotEqual = _compare(torch.ne)
Pad = _named(lambda x, pad, mode="constant", channel_last=False: functional.pad(x, pad, mode))
PixelShuffle = _named(functional.pixel_shuffle)
Pow = Power = _named(torch.pow)
Reciprocal = _named(torch.reciprocal)
ReduceAvg = _reduce(torch.mean)
ReduceMax = _reduce(torch.amax)
ReduceSum = _reduce(torch.sum)
Relu = _named(
    lambda x, threshold=0.0, mode="min": (
        (torch.where(x < threshold, 0.0, x) if mode == "min" else torch.clamp(x, 0.0, threshold))
        if threshold
        else functional.relu(x)
    )
)
Repeat = _named(lambda x, factors: x.repeat(*factors))
Reshape = _named(lambda x, shape: x.reshape(shape))
Select = _named(_select)
Sigmoid = _named(torch.sigmoid)
Sine = _named(torch.sin)
Softmax = _named(lambda x, dim, stable=True: functional.softmax(x, dim=dim))
Sqrt = _named(torch.sqrt)
Squeeze = _named(torch.squeeze)
Stack = _named(lambda *xs, axis: torch.stack(xs, dim=axis))
Subtract = _named(torch.sub)
Tanh = _named(torch.tanh)
Transpose = _named(lambda x, dim0, dim1, **_: x.transpose(dim0, dim1))
Unsqueeze = _named(torch.unsqueeze)
Where = _named(lambda condition, a, b: torch.where(condition != 0, a, b))

from . import nn  # noqa: E402

_OPERATORS = [name for name in vars() if name[0].isupper() and name not in ("Any", "Callable")]
__all__ = ["nn", *sorted(_OPERATORS)]  # noqa: PLE0604 - all are strings
__getattr__ = getattr_for(__name__)
