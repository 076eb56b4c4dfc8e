"""How device tensors live on the host, and the rounding at their edges.

Float formats are float32 tensors that hold only values their format can represent. Every integer
format is an int64 tensor: wide enough for uint32, and what torch's index operations take. Results
of comparisons are bfloat16 on the device, so they are float32 zeros and ones here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from temper import kernels
from temper.program.tensor import INTEGER_FORMATS, TensorSpec

RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "uint16": (0, 2**16 - 1),
    "uint8": (0, 2**8 - 1),
}
# Stored mantissa bits of each float format once it is in the matrix engine's 19-bit registers.
MANTISSA_BITS = {"float32": 10, "bfloat16": 7, "bfloat8_b": 6, "bfloat4_b": 2, "bfloat2_b": 0}
# Formats whose every value the key can hold as well, so that a typecast changes nothing.
_HOLDS = {
    "float32": {"float32", "bfloat16", "bfloat8_b", "bfloat4_b", "bfloat2_b"},
    # A block format's value has at most 7 significant bits and float32's exponent range.
    "bfloat16": {"bfloat16", "bfloat8_b", "bfloat4_b", "bfloat2_b"},
}


def host_dtype(format_name: str) -> torch.dtype:
    """What holds a format's values on the host."""
    return torch.int64 if format_name in INTEGER_FORMATS else torch.float32


def holds(target: str, source: str) -> bool:
    """Whether every value of ``source`` is a value of ``target`` on the host."""
    return source == target or source in _HOLDS.get(target, ())


# The formats whose values a torch dtype holds exactly, so that inputs need no rounding.
_EXACT_INPUT = {
    torch.bfloat16: {"bfloat16", "float32"},
    torch.float32: {"float32"},
    torch.bool: {"float32", "bfloat16", "bfloat8_b", "uint8", "uint16", "int32", "uint32"},
}


def exact_input(dtype: torch.dtype, format_name: str) -> bool:
    """Whether a format holds every value of a dtype."""
    return format_name in _EXACT_INPUT.get(dtype, ())


def round_(tensor: torch.Tensor, format_name: str) -> torch.Tensor:
    """Round a contiguous float32 tensor to a format, in place.

    bfloat16: nearest, ties to even. Block formats: the host packer's rule on groups of 16 along
    the last dimension. float32 and integers: nothing to do.
    """
    if tensor.dtype == torch.float32 and format_name != "float32" and tensor.numel():
        rounding(tensor, format_name)()
    return tensor


def rounding(tensor: torch.Tensor, format_name: str) -> Callable[[], None]:
    """A closure that rounds this contiguous float32 buffer in place."""
    address, count = tensor.data_ptr(), tensor.numel()
    if format_name == "bfloat16":
        return partial(kernels.round_bf16_ptr, address, count)
    columns = tensor.shape[-1] if tensor.dim() else 1
    code = kernels.FORMAT_CODES[format_name]
    return partial(kernels.quantize_ptr, address, count // columns, columns, code)


def to_integer(source: torch.Tensor, format_name: str) -> torch.Tensor:
    """To an integer format. Floats are typecast as ttnn does: truncated; 8 and 16 bits saturate,
    32 bits wrap (uint32) or become INT_MIN out of range (int32). Integers wrap at 32 bits."""
    low, high = RANGES[format_name]
    floating = source.dtype.is_floating_point
    if floating:
        source = source.double().nan_to_num(nan=float(low), posinf=2.0**62, neginf=-(2.0**62))
        source = source.trunc().clamp_(-(2.0**62), 2.0**62)
    values = source.to(torch.int64)
    if format_name == "uint32":
        return values & high
    if format_name == "int32" and not floating:
        return ((values - low) & (high - low)) + low
    if format_name == "int32":
        return torch.where((values < low) | (values > high), low, values)
    return values.clamp(low, high)


def pairs(source: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs, which is how they reach a program; others as they are."""
    return torch.view_as_real(source.resolve_conj()) if source.is_complex() else source


def load(source: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """A user's tensor or weight as the host form of its spec, in memory of its own."""
    if spec.format in INTEGER_FORMATS:
        # The largest and smallest int64 serve as "no value": they stay the largest and smallest.
        low, high = RANGES[spec.format]
        values = source.detach()
        if values.dtype == torch.int64:
            values = values.clamp(low, high)
        return to_integer(values, spec.format).reshape(spec.shape).clone()
    source = pairs(source)
    values = source.detach().to(torch.float32, copy=True).contiguous().reshape(spec.shape)
    return values if exact_input(source.dtype, spec.format) else round_(values, spec.format)
