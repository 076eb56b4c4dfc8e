"""The preprocessing kernels in plain Python: slow, exact, used without a compiler and in tests."""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from temper.etl import kernel_types as k

_DTYPES = (np.float32, np.int32, np.int64)  # the last also for the bits of uint64
_LONGEST_ROW = 16 << 20  # as the kernels have it (kernels/etl_text.hpp, kLongestRow)


class PureColumn:
    """One chain, value by value."""

    def __init__(self, spec: tuple[int, int, float, list[Any]]) -> None:
        self.kind, out, fill, self.steps = spec
        self.dtype = _DTYPES[out]
        self.missing = self.run(np.float32(fill) if self.kind == 1 else int(fill))

    def run(self, value: Any) -> Any:
        for code, low, high, edges in self.steps:
            if code == 0:
                value = value if value >= 0 else type(value)(0)
            elif code == 1:
                value = type(value)(low) if low is not None and value < low else value
                value = type(value)(high) if high is not None and value > high else value
            elif code in (2, 3):
                x = np.float32(value)
                argument = float(x + np.float32(low)) if code == 2 else float(x)
                value = np.float32(_log(argument) if code == 2 else _log(argument, plus_one=True))
            elif code == 4:
                value = bisect_left(edges, float(value))
            else:
                value = int(value) % int(low)
        return value

    def read(self, text: str) -> tuple[Any, int]:
        """The finished value of one field and why it is malformed, 0 if it is not."""
        text = text.strip(" \r") if text.endswith("\r") else text.strip(" ")
        if text and '"' in (text[0], text[-1]):  # half of a quoted field is no field
            if len(text) < 2 or text[0] != '"' or text[-1] != '"':
                return self.missing, {0: 2, 1: 3}.get(self.kind, 4)
            text = text[1:-1].rstrip("\r").strip(" ")
            text = text.replace('""', '"') if self.kind == 4 else text
        if not text:
            return self.missing, 0
        try:
            if self.kind == 4:
                return self.finish(text_hash(text.encode("latin-1")))
            if self.kind == 2:
                digits = text[2:] if text[:2] in ("0x", "0X") and len(text) > 2 else text
                if len(digits) > 16:
                    return self.missing, 5
                if not all(c in "0123456789abcdefABCDEF" for c in digits):
                    return self.missing, 4
                value: Any = int(digits, 16)
            elif self.kind == 0:
                sign = text[1:] if text[0] in "+-" else text
                if not (sign.isascii() and sign.isdigit()):
                    return self.missing, 2
                value = int(text)
            else:
                value = float(text)
                if math.isnan(value):
                    return self.missing, 3
                with np.errstate(over="ignore"):
                    value = np.float32(value)
                if math.isinf(value):
                    return self.missing, 5
        except ValueError:
            return self.missing, 3
        return self.finish(value)

    def finish(self, value: Any) -> tuple[Any, int]:
        if self.kind != 1 and not self.fits(value):
            return self.missing, 5
        return self.run(value), 0

    def fits(self, value: int) -> bool:
        if self.kind in (2, 4) and not (value < 0 and self.reduces()):
            return 0 <= value < 1 << (31 if self.dtype is np.int32 and not self.steps else 64)
        bits = 31 if self.dtype is np.int32 and not self.steps else 63
        return -(1 << bits) <= value < 1 << bits

    def reduces(self) -> bool:
        return self.dtype is np.float32 or any(code in (4, 5) for code, *_ in self.steps)


def text_hash(text: bytes) -> int:
    """FNV-1a, then a mixing that spreads its low bits, as in kernels/etl_chain.hpp."""
    value, whole = 0xCBF29CE484222325, (1 << 64) - 1
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 & whole
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & whole
    return value ^ value >> 33


def _log(value: float, *, plus_one: bool = False) -> float:
    """log as C has it: -inf at the pole, nan below."""
    pole = -1.0 if plus_one else 0.0
    if value <= pole:
        return -math.inf if value == pole else math.nan
    return math.log1p(value) if plus_one else math.log(value)


class PurePlan:
    """The twin of the native plan."""

    def __init__(self, specs: Sequence[tuple[int, int, float, list[Any]]]) -> None:
        self.columns = [PureColumn(spec) if spec[0] != 3 else None for spec in specs]

    def parse(
        self, source: int | memoryview, size: int, span: tuple[int, int],
        outs: Sequence[k.Buffer | None], at: int, capacity: int, delimiter: str, policy: str,
    ) -> k.Parsed:  # fmt: skip
        begin, end = span[0], min(span[1], size)
        if isinstance(source, int):
            data = os.pread(source, size - begin, begin)
        else:
            data = bytes(source[begin:size])
        rows = lines = pos = 0
        reasons = [0] * len(k.REASONS)
        bad: list[k.Malformed] = []
        while begin + pos < end and pos < len(data) and at + rows < capacity:
            stop = data.find(b"\n", pos)
            stop = len(data) if stop < 0 else stop
            if stop - pos > _LONGEST_ROW:
                return k.Parsed(rows, lines, begin + pos, tuple(reasons), tuple(bad[:20]), "long")
            line = data[pos:stop].decode("latin-1")
            if len(self.columns) > 1 and line in ("", "\r") and stop < len(data):
                lines += 1
                pos = stop + 1
                continue
            fields = _fields(line, delimiter)
            values: list[Any] = []
            fault: k.Malformed | None = None
            for index, column in enumerate(self.columns):
                text = fields[index] if index < len(fields) else ""
                if column is None:
                    values.append(None)
                    continue
                value, reason = column.read(text)
                values.append(value)
                if reason and fault is None:
                    fault = k.Malformed(lines, index, reason, _shown(text.encode("latin-1")))
            if fault is None and len(fields) != len(self.columns):
                fault = k.Malformed(lines, -1, 1, _shown(data[pos:stop]))
            if fault is not None:
                reasons[fault.reason] += 1
                bad.append(fault)
            if fault is None or policy == "fill":
                for out, value in zip(outs, values, strict=True):
                    if out is not None:
                        out[at + rows] = value
                rows += 1
            lines += 1
            pos = min(stop + 1, len(data))
        return k.Parsed(rows, lines, begin + pos, tuple(reasons), tuple(bad[:20]), "")

    def apply(self, index: int, array: Any, out: k.Buffer) -> list[tuple[int, int]]:
        column = self.columns[index]
        assert column is not None
        bad = []
        for row, raw in enumerate(array.to_pylist()):
            item = raw.decode("latin-1") if isinstance(raw, bytes) else raw
            if item is None:
                value, reason = column.missing, 0
            elif isinstance(item, str):
                raw_text = item if isinstance(raw, bytes) else item.encode().decode("latin-1")
                value, reason = column.read(raw_text)
            elif isinstance(item, float):
                with np.errstate(over="ignore"):
                    single = np.float32(item)
                if math.isfinite(single):
                    value, reason = column.run(single), 0
                else:
                    value, reason = column.missing, 3 if math.isnan(item) else 5
            else:
                value, reason = column.finish(np.float32(item) if column.kind == 1 else item)
            out[row] = value
            if reason:
                bad.append((row, reason))
        return bad


class PureVocabulary:
    """A dictionary in order of first appearance."""

    def __init__(self, max_keys: int) -> None:
        self.max_keys = max_keys
        self.full = False
        self.ids: dict[int, int] = {}
        self.seen: list[int] = []

    def __len__(self) -> int:
        return len(self.ids)

    def identify(self, key: int) -> int:
        if key not in self.ids:
            if len(self.ids) >= self.max_keys:
                self.full = True
                return 0
            self.ids[key] = len(self.ids)
            self.seen.append(0)
        return self.ids[key]

    def add(self, keys: npt.NDArray[np.int64]) -> None:
        for key in keys.tolist():
            self.identify(key)

    def keys(self, to: npt.NDArray[np.int64], start: int) -> None:
        to[:] = list(self.ids)[start:]

    def counts(self, to: npt.NDArray[np.int64]) -> None:
        to[:] = self.seen


def _fields(line: str, delimiter: str) -> list[str]:
    """Fields of a row; one in quotes may hold the delimiter, and quotes in it are doubled."""
    found: list[str] = []
    at = 0
    while True:
        first = at
        while line[first : first + 1] == " ":
            first += 1
        stop = at
        if line[first : first + 1] == '"' and delimiter != '"':
            close = first + 1
            while close < len(line):
                if line[close] == '"':
                    if line[close + 1 : close + 2] != '"':
                        stop = close + 1
                        break
                    close += 1
                close += 1
        end = line.find(delimiter, stop)
        found.append(line[at:] if end < 0 else line[at:end])
        if end < 0:
            return found
        at = end + 1


def run_task(task: k.Task) -> int:
    """One block of rows in Python; the native library's twin."""
    vocabulary = task.vocabulary
    assert isinstance(vocabulary, PureVocabulary)
    unseen = 0
    values = task.values.view(np.int64) if task.values.dtype == np.uint64 else task.values
    for row, key in enumerate(values.tolist()):
        if task.mode == k.MAP:
            found = vocabulary.ids.get(key)
            unseen += found is None
            task.out[row] = task.oov if found is None else found + task.base
            continue
        identifier = vocabulary.identify(key)
        if task.mode == k.COUNT:
            vocabulary.seen[identifier] += 1
        else:
            task.out[row] = identifier + task.base
    return unseen


def _shown(text: bytes) -> str:
    """The start of a malformed field, for people."""
    return bytes(text[:60]).decode("utf-8", "replace")
