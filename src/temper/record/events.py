"""Events as fixed 40-byte records: what a process notes while it runs, cheap to pack and keep."""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag

import numpy as np


class Kind(IntEnum):
    """What an event says; the fields it uses stand beside it."""

    CALL = 1  # ref: program handle; start, end: host; value: replay count, 0 when not replayed
    SPAN = 2  # ref: name, other: category; start, end: host
    MARK = 3  # ref: name; start: host
    TRANSFER_IN = 4  # ref: name; start, end: host; value: bytes; modelled: link time in ns
    TRANSFER_OUT = 5
    MEMORY_DRAM = 6  # ref: name; start: host; value: bytes, negative when freed; modelled: address
    MEMORY_SRAM = 7


class Flag(IntFlag):
    """Properties of a call."""

    FIRST = 1
    TRACED = 2
    CONST_EVAL = 4


# Little endian and packed, so that one struct call writes what one numpy view reads.
PACKER = struct.Struct("<BBHIqqqd")
DTYPE = np.dtype(
    [
        ("kind", "<u1"),
        ("flags", "<u1"),
        ("other", "<u2"),
        ("ref", "<u4"),
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("value", "<i8"),
        ("modelled", "<f8"),
    ]
)
SIZE = PACKER.size
assert DTYPE.itemsize == SIZE


def decode(data: bytes | bytearray | memoryview) -> np.ndarray:
    """The whole events in ``data``; a torn last one is left out."""
    whole = len(data) - len(data) % SIZE
    return np.frombuffer(bytes(data[:whole]), dtype=DTYPE)
