"""Quantise: the values of an array that a format of the chip can hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temper.formats.arrays import (
    Array,
    address,
    assign,
    check_out,
    checked,
    empty_like,
    is_plain,
    is_tensor,
    may_overlap,
    to_numpy,
)
from temper.formats.names import FORMATS, INTEGER_FORMATS, canonical_format
from temper.kernels import FORMAT_CODES, quantize_ptr, quantize_to_ptr

# Values converted at once where a conversion needs temporaries.
_CHUNK = 1 << 20


def quantize(array: Array, fmt: object, out: Array | None = None) -> Array:
    """The nearest values that ``fmt`` holds, as float32 in the shape and kind of ``array``.

    Any rank, dtype and strides. float16, bfloat16 and small integers are taken exactly; float64 and
    large integers are first rounded to float32 (nearest even, beyond its range to infinity).
    Block formats share an exponent over 16 values of the last dimension; a short last group is
    filled with zeros. Integer formats truncate and return their own integer type, see
    :func:`to_integer`. ``out`` (float32, may be ``array`` itself) receives the result.
    Without ``out`` the only memory taken is the result's.
    """
    name = canonical_format(fmt, (*FORMATS, "tf32"))
    if name in INTEGER_FORMATS:
        return to_integer(array, name, out)
    given, array = array, checked(array)
    shape = tuple(array.shape)
    if out is not None:
        check_out(out, array, shape, "float32")
    direct = out is not None and is_plain(out, "float32")
    result = out if direct else empty_like(array, shape, "float32")
    columns = shape[-1] if shape else 1
    rows = math.prod(shape) // columns if columns else 0
    code = FORMAT_CODES[name]
    if is_plain(array, "float32") and not may_overlap(array, result):
        quantize_to_ptr(address(array), address(result), rows, columns, code)
    else:
        assign(result, _apart(array, result))
        quantize_ptr(address(result), rows, columns, code)
    if out is None:
        return _on_device_of(given, result)
    if not direct:
        assign(out, result)
    return out


def to_integer(array: Array, fmt: object, out: Array | None = None) -> Array:
    """Integers as the host converts them: truncated, then by the format's own rule.

    int32: out of range and NaN become the least value. uint32: wraps. uint16 and uint8: saturate,
    negatives and NaN become 0.
    """
    name = canonical_format(fmt, sorted(INTEGER_FORMATS))
    given, array = array, checked(array)
    shape = tuple(array.shape)
    if out is not None:
        check_out(out, array, shape, name)
    result = empty_like(array, shape, name) if out is None else out
    source = to_numpy(array)
    target = result.detach().numpy() if is_tensor(result) else result
    wide = np.float64 if source.dtype.kind == "f" else np.int64
    if np.may_share_memory(source, target):
        source = source.copy()
    with (
        np.nditer(
            [source, target],
            flags=["external_loop", "buffered", "zerosize_ok"],
            op_flags=[["readonly"], ["writeonly"]],
            op_dtypes=[wide, target.dtype],
            casting="unsafe",
            buffersize=_CHUNK,
        ) as pieces,
        np.errstate(invalid="ignore"),
    ):
        for piece, to in pieces:
            to[...] = _integers(piece, name)
    return _on_device_of(given, result) if out is None else out


def _integers(values: NDArray[Any], name: str) -> NDArray[Any]:
    if name in ("uint16", "uint8"):
        limits = np.iinfo(name)
        values = np.clip(np.nan_to_num(values, nan=0.0), limits.min, limits.max)
    elif name == "int32":
        inside = (np.trunc(values) >= -(2**31)) & (np.trunc(values) <= 2**31 - 1)
        values = np.where(inside, values, -(2**31))
    integers: NDArray[Any] = values.astype(np.int64).astype(name)
    return integers


def _apart(array: Array, result: Array) -> Array:
    """numpy copies between overlapping views by itself, torch does not."""
    if (
        is_tensor(array)
        and array.untyped_storage().data_ptr() == result.untyped_storage().data_ptr()
    ):
        return array.clone()
    return array


def _on_device_of(given: Array, result: Array) -> Array:
    if is_tensor(given) and given.device.type != "cpu":
        return result.to(given.device)
    return result
