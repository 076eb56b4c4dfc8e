"""Technique 2: why the first calls do not count.

temper run examples/pytorch/warmup.py
"""

from __future__ import annotations

import time

import torch
import torch_xla
from torch import nn


def main() -> None:
    torch_xla.set_custom_compile_options({"optimization_level": 1, "enable_trace": True})
    model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 64)).eval()
    device = torch_xla.device()
    compiled = torch.compile(model.to(torch.bfloat16).to(device), backend="tt")
    x = torch.randn(32, 256, dtype=torch.bfloat16).to(device)
    what = ["compiles, uploads, const-evaluates", "records the trace", "replays", "replays"]
    times = []
    with torch.no_grad():
        for note in what:
            start = time.perf_counter()
            compiled(x).to("cpu")
            times.append(time.perf_counter() - start)
            print(f"call {len(times)}: {times[-1] * 1e3:9.3f} ms  {note}")
    print(f"the first call took {times[0] / times[-1]:,.0f} times as long as the last")


if __name__ == "__main__":
    main()
