"""What numpy arrays and torch tensors have in common here; torch is never imported for numpy."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from temper.errors import UsageError

# numpy.ndarray or torch.Tensor: the functions of this package return the kind they were given.
Array: TypeAlias = Any


def is_tensor(array: object) -> bool:
    """Whether it is a torch tensor; torch is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def checked(array: Array) -> Array:
    """The array as numpy array or host tensor with real numbers in it, or an error."""
    if is_tensor(array):
        return _checked_tensor(array)
    try:
        array = np.asarray(array)
    except ValueError as error:
        raise UsageError(f"not an array: {error}") from None
    if array.dtype.kind not in "biuf":
        raise UsageError(
            f"arrays of {array.dtype} have no number format on the chip",
            allowed="real floating-point, integer and boolean arrays",
        )
    return array


def empty_like(array: Array, shape: tuple[int, ...], dtype: str) -> Array:
    """New memory of the same kind, numpy or torch."""
    if is_tensor(array):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return np.empty(shape, dtype)


def is_plain(array: Array, dtype: str) -> bool:
    """Whether a kernel can read the memory as it is: this type, contiguous, native order."""
    if is_tensor(array):
        torch_type = getattr(sys.modules["torch"], dtype)
        return array.dtype == torch_type and array.is_contiguous() and not array.is_neg()
    flags = array.flags
    return bool(array.dtype == np.dtype(dtype) and flags.c_contiguous and flags.aligned)


def address(array: Array) -> int:
    """Where the array's values begin in memory."""
    if is_tensor(array):
        return int(array.data_ptr())
    return int(array.__array_interface__["data"][0])


def assign(to: Array, array: Array) -> None:
    """Copies with a cast: to nearest even, beyond the range to infinity. Needs no extra memory."""
    if is_tensor(to):
        to.detach().copy_(array)
        return
    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(to, array, casting="unsafe")


def to_plain(array: Array, dtype: str) -> Array:
    """The array itself if a kernel can read it, or a cast copy."""
    if is_plain(array, dtype):
        return array
    copy = empty_like(array, tuple(array.shape), dtype)
    assign(copy, array)
    return copy


def to_numpy(array: Array) -> NDArray[Any]:
    """A numpy view where there is one; float types that numpy lacks become float32."""
    array = checked(array)
    if is_tensor(array):
        torch = sys.modules["torch"]
        array = array.resolve_neg()
        known = (torch.float16, torch.float32, torch.float64)
        foreign = array.is_floating_point() and array.dtype not in known
        array = (array.float() if foreign else array).numpy()
    result: NDArray[Any] = array
    return result


def check_out(out: Array, array: Array, shape: tuple[int, ...], dtype: str) -> None:
    """A destination must be of the same kind, have the result's shape and type, and be writable."""
    kind = "tensor" if is_tensor(array) else "numpy array"
    if is_tensor(out) != is_tensor(array) or not (is_tensor(out) or isinstance(out, np.ndarray)):
        raise UsageError(f"out must be a {kind} as the input is, not {type(out).__name__}")
    if is_tensor(out) and out.device.type != "cpu":
        raise UsageError(f"out must be in host memory, not on {out.device}")
    given = str(out.dtype).removeprefix("torch.")
    if given != dtype or tuple(out.shape) != tuple(shape):
        raise UsageError(
            "out does not fit the result",
            needs=f"{dtype} {tuple(shape)}",
            given=f"{given} {tuple(out.shape)}",
        )
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise UsageError("out is read-only")


def may_overlap(a: Array, b: Array) -> bool:
    """Whether the memory of two plain arrays may overlap without being the same."""
    start_a, start_b = address(a), address(b)
    if start_a == start_b:
        return False
    return start_a < start_b + _size_bytes(b) and start_b < start_a + _size_bytes(a)


def _size_bytes(array: Array) -> int:
    return int(array.nbytes)


def _checked_tensor(tensor: Array) -> Array:
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided or tensor.is_complex() or tensor.is_quantized:
        raise UsageError(
            f"a tensor of {tensor.dtype} and layout {tensor.layout} has no format on the chip",
            allowed="dense tensors of real floating-point, integer and boolean types",
        )
    if tensor.device.type == "meta":
        raise UsageError("a tensor on the meta device has no values")
    tensor = tensor.detach()
    return tensor if tensor.device.type == "cpu" else tensor.cpu()
