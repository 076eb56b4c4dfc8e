"""Formats against a plain copy, side by side in one run; exits with 1 if a bar is missed.

    python benchmarks/formats.py [--mib 64] [--repeats 150] [--json]

All rows are measured on this machine, interleaved; a row's time is its best. The copy that ratios
refer to is the fastest of numpy's and torch's into existing memory.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch

from temper import kernels
from temper.formats import pack, packed_shape, quantize, unpack

BLOCK = ("bfloat8_b", "bfloat4_b", "bfloat2_b")
COPIES = ("copy, numpy", "copy, torch")
SLOW = ("copy into fresh memory", "bfloat16 round trip, torch")  # no bar: three repeats will do


@dataclass(frozen=True)
class Row:
    name: str
    time_ms: float
    ratio: float  # speed relative to the copy into existing memory
    bar: float | None

    @property
    def met(self) -> bool:
        return self.bar is None or self.ratio >= self.bar


def operations(mib: int) -> list[tuple[str, float | None, Callable[[], object]]]:
    """Name, bar as a share of the copy's speed, and the call."""
    columns = 4096
    shape = (mib * 2**20 // 4 // columns, columns)
    source = np.random.default_rng(0).standard_normal(shape, np.float32)
    out = np.zeros_like(source)
    tensor, tensor_out = torch.from_numpy(source), torch.from_numpy(out)
    packed = {fmt: np.zeros(packed_shape(shape, fmt), np.uint8) for fmt in (*BLOCK, "bfloat16")}
    for fmt, memory in packed.items():
        pack(source, fmt, out=memory)
    rows: list[tuple[str, float | None, Callable[[], object]]] = [
        (COPIES[0], None, lambda: np.copyto(out, source)),
        (COPIES[1], None, lambda: tensor_out.copy_(tensor)),
        ("copy into fresh memory", None, source.copy),
        ("bfloat16 round trip, torch", None, lambda: tensor.to(torch.bfloat16).float()),
        ("round to bfloat16 in place", 1.0, lambda: quantize(out, "bfloat16", out=out)),
        ("round to bfloat16 into buffer", None, lambda: quantize(source, "bfloat16", out=out)),
    ]
    for fmt in BLOCK:
        bar = None if fmt == "bfloat2_b" else 1.0
        rows.append((f"quantise {fmt} in place", bar, _quantize(out, fmt, out)))
        rows.append((f"quantise {fmt} into buffer", None, _quantize(source, fmt, out)))
    for fmt, memory in packed.items():
        rows.append((f"pack {fmt}", 0.6, _pack(source, fmt, memory)))
        rows.append((f"unpack {fmt} into buffer", 0.5, _unpack(memory, fmt, out)))
    return rows


def _quantize(source: np.ndarray, fmt: str, out: np.ndarray) -> Callable[[], object]:
    return lambda: quantize(source, fmt, out=out)


def _pack(source: np.ndarray, fmt: str, out: np.ndarray) -> Callable[[], object]:
    return lambda: pack(source, fmt, out=out)


def _unpack(packed: np.ndarray, fmt: str, out: np.ndarray) -> Callable[[], object]:
    return lambda: unpack(packed, fmt, out.shape, out=out)


def measure(mib: int, repeats: int) -> list[Row]:
    calls = operations(mib)
    best = {name: float("inf") for name, _, _ in calls}
    for repeat in range(repeats):
        for name, _, call in calls:
            if name in SLOW and repeat >= 3:
                continue
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    copy = min(best[name] for name in COPIES)
    return [Row(name, best[name] * 1e3, copy / best[name], bar) for name, bar, _ in calls]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=64, help="float32 input in MiB")
    parser.add_argument("--repeats", type=int, default=150)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = measure(arguments.mib, arguments.repeats)
    if arguments.json:
        print(json.dumps([{**asdict(row), "met": row.met} for row in rows], indent=1))
    else:
        library = "native" if kernels.native is not None else "pure Python"
        print(
            f"{arguments.mib} MiB of float32, {library} kernels, {torch.get_num_threads()} threads"
        )
        print(f"best of {arguments.repeats} interleaved repeats, measured here\n")
        print(f"{'':<32}{'ms':>8}{'x copy':>8}{'bar':>6}")
        for row in rows:
            bar = "" if row.bar is None else f"{row.bar:.1f}"
            verdict = "" if row.bar is None else ("  met" if row.met else "  MISSED")
            print(f"{row.name:<32}{row.time_ms:>8.2f}{row.ratio:>8.2f}{bar:>6}{verdict}")
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
