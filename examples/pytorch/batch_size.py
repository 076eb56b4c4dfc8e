"""Technique 5: double the batch until throughput stops to grow. Modelled; no batch is run.

temper run examples/pytorch/batch_size.py
"""

from __future__ import annotations

import torch
from torch import nn

from temper.compiler.pipeline import compile_model
from temper.cost import estimate
from temper.errors import OutOfMemoryError


def main() -> None:
    model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10)).eval()
    model = model.to(torch.bfloat16)
    best = (0.0, 0)
    for batch in (2**power for power in range(15)):
        x = torch.zeros(batch, 784, dtype=torch.bfloat16)
        options = {"optimization_level": 2, "enable_trace": True}
        try:
            (program,) = compile_model(model, (x,), options=options).programs
        except OutOfMemoryError as error:
            print(f"batch {batch}: {error}")
            break
        call_ns = estimate(program, traced=True).call_ns
        gain = batch / call_ns * 1e9 / best[0] if best[0] else 2.0
        best = max(best, (batch / call_ns * 1e9, batch))
        print(f"batch {batch:4}  {batch / call_ns * 1e9:12,.0f} samples/s  "
              f"{call_ns / 1e3:8.1f} µs a call, modelled")  # fmt: skip
        if gain < 1.05:
            break
    print(f"most throughput: batch {best[1]}")


if __name__ == "__main__":
    main()
