"""Arrays in the safetensors container, written and read with numpy alone.

Layout: 8 bytes header length (little-endian), the header as JSON, then the data without gaps.
float32 arrays that bfloat16 holds exactly are written as BF16 and read back as float32.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from temper.errors import BadFileError, UsageError

_DTYPES = {
    "float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16",
    "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
_STORED: dict[str, np.dtype[Any]] = {
    short: np.dtype(name).newbyteorder("<") for name, short in _DTYPES.items()
}
_STORED["BF16"] = np.dtype("<u2")


def dump(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """All arrays as one safetensors file."""
    header: dict[str, Any] = {}
    pieces: list[bytes] = []
    offset = 0
    for name, array in arrays.items():
        dtype, data = _encoded(name, np.asarray(array))
        end = offset + len(data)
        header[name] = {
            "dtype": dtype,
            "shape": list(np.shape(array)),
            "data_offsets": [offset, end],
        }
        pieces.append(data)
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *pieces])


def parse(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file; BadFileError for anything that is not whole and sound."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        _fail("the header is cut off")
    try:
        header = json.loads(data[8 : 8 + length].decode())
    except (ValueError, RecursionError) as error:
        _fail(f"the header is no JSON: {error}")
    if not isinstance(header, dict):
        _fail("the header is no mapping")
    header.pop("__metadata__", None)
    body = memoryview(data)[8 + length :]
    found: dict[str, NDArray[Any]] = {}
    covered = 0
    for name, entry in header.items():
        found[name] = _decoded(name, entry, body)
        covered += entry["data_offsets"][1] - entry["data_offsets"][0]
    if covered != len(body):
        _fail(f"{len(body)} B of data, the header accounts for {covered} B")
    return found


def _encoded(name: str, array: NDArray[Any]) -> tuple[str, bytes]:
    kind = array.dtype.name
    if kind not in _DTYPES:
        raise UsageError(
            f"weight {name!r} of type {array.dtype} cannot be saved", allowed=" ".join(_DTYPES)
        )
    plain = np.ascontiguousarray(array, dtype=_STORED[_DTYPES[kind]])
    if kind == "float32":
        words = plain.reshape(-1).view("<u4")
        if not np.any(words & np.uint32(0xFFFF)):
            return "BF16", (words >> np.uint32(16)).astype("<u2").tobytes()
    return _DTYPES[kind], plain.tobytes()


def _decoded(name: str, entry: Any, body: memoryview) -> NDArray[Any]:
    if not isinstance(entry, dict) or entry.get("dtype") not in _STORED:
        _fail(f"{name!r} has no known type")
    dtype = _STORED[entry["dtype"]]
    shape = _integers(name, entry.get("shape"))
    span = _integers(name, entry.get("data_offsets"))
    if len(span) != 2 or not span[0] <= span[1] <= len(body):
        _fail(f"{name!r} lies outside of the data")
    if span[1] - span[0] != math.prod(shape) * dtype.itemsize:
        _fail(f"{name!r} has {span[1] - span[0]} B, which is not {shape} of {entry['dtype']}")
    values: NDArray[Any] = np.frombuffer(body[span[0] : span[1]], dtype)
    if entry["dtype"] == "BF16":
        values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    try:
        values = values.astype(values.dtype.newbyteorder("=")).reshape(shape)
    except ValueError as error:
        _fail(f"{name!r}: {error}")
    return values


def _integers(name: str, data: object) -> list[int]:
    if not isinstance(data, list) or not all(type(n) is int and n >= 0 for n in data):
        _fail(f"{name!r} has a damaged shape or offsets")
    return data


def _fail(what: str) -> NoReturn:
    raise BadFileError(f"the weights are damaged: {what}")
