"""Messages between Temper and its worker: a length, JSON, and arrays as raw bytes; no pickle.

A frame is the length of its JSON (4 bytes) and of its data (8 bytes), both little-endian, then
both. ``arrays`` in the JSON lists dtype and shape of each array in the data, in order. This file
needs numpy alone: the worker runs it in ttnn's own Python.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

_HEAD = struct.Struct("<IQ")
_DTYPES = {"float32", "int32", "int64", "uint32", "uint16", "uint8"}
_MOST_JSON = 1 << 28
_MOST_DATA = 1 << 40


class Closed(Exception):
    """The other side is gone."""


class BadFrame(Exception):
    """What came is no frame of ours."""


def send(channel: Any, message: dict[str, Any], arrays: Sequence[Any] = ()) -> None:
    """Write one frame to a socket."""
    plain = [np.ascontiguousarray(a) for a in arrays]
    described = [{"dtype": str(a.dtype), "shape": list(a.shape)} for a in plain]
    text = json.dumps({**message, "arrays": described}).encode()
    try:
        channel.sendall(_HEAD.pack(len(text), sum(a.nbytes for a in plain)) + text)
        for array in plain:
            if array.nbytes:
                channel.sendall(array.data.cast("B"))
    except TimeoutError:
        raise
    except OSError as error:
        raise Closed(str(error)) from None


def receive(channel: Any) -> tuple[dict[str, Any], list[Any]]:
    """Read one frame from a socket."""
    length, size = _HEAD.unpack(_exactly(channel, _HEAD.size))
    if length > _MOST_JSON or size > _MOST_DATA:
        raise BadFrame(f"a frame of {length} and {size} B")
    try:
        message = json.loads(bytes(_exactly(channel, length)))
    except ValueError as error:
        raise BadFrame(str(error)) from None
    arrays = []
    for entry in message.pop("arrays"):
        if entry["dtype"] not in _DTYPES:
            raise BadFrame(f"an array of {entry['dtype']}")
        dtype = np.dtype(entry["dtype"])
        count = int(np.prod(entry["shape"], dtype=np.int64))
        data = _exactly(channel, count * dtype.itemsize)
        arrays.append(np.frombuffer(data, dtype).reshape(entry["shape"]))
    return message, arrays


def _exactly(channel: Any, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    got = 0
    while got < size:
        try:
            count = channel.recv_into(view[got:])
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise Closed(str(error)) from None
        if count == 0:
            raise Closed("the channel was closed")
        got += count
    return data


def read_tensors(path: str) -> dict[str, Any]:
    """The arrays of a safetensors file, mapped, not copied; bfloat16 becomes float32."""
    raw = np.memmap(path, np.uint8, "r")
    length = int.from_bytes(bytes(raw[:8]), "little")
    header = json.loads(bytes(raw[8 : 8 + length]))
    kinds = {"F32": "<f4", "I32": "<i4", "I64": "<i8", "U32": "<u4", "U16": "<u2", "U8": "u1",
             "I8": "i1", "I16": "<i2", "F64": "<f8", "F16": "<f2", "BOOL": "u1"}  # fmt: skip
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        data = raw[8 + length + start : 8 + length + end]
        if entry["dtype"] == "BF16":
            array = (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            array = data.view(kinds[entry["dtype"]])
        found[name] = array.reshape(entry["shape"])
    return found
