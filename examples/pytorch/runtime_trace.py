"""Technique 4: the same program with and without trace.

temper run examples/pytorch/runtime_trace.py
"""

from __future__ import annotations

import torch
from torch import nn

import temper


def main() -> None:
    layers = [layer for _ in range(12) for layer in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*layers).eval().to(torch.bfloat16)
    x = torch.randn(32, 256, dtype=torch.bfloat16)
    for trace in (False, True):
        compiled = temper.compile(model, level=1, enable_trace=trace)
        temper.warmup(compiled, x)
        cost = compiled.loaded[0].cost(traced=trace)
        print(f"enable_trace={trace!s:5}  call {cost.call_ns / 1e3:8.1f} µs modelled, "
              f"of which device {cost.device_ns / 1e3:.1f} µs")  # fmt: skip


if __name__ == "__main__":
    main()
