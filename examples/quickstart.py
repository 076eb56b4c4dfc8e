"""Compile a model for a virtual n150, warm it up, and ask what it cost."""

import torch

import temper

model = torch.nn.Sequential(
    torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
).eval().to(torch.bfloat16)  # fmt: skip
inputs = torch.rand(32, 784, dtype=torch.bfloat16)

compiled = temper.compile(model, chip="n150", level=2, enable_trace=True)
temper.warmup(compiled, inputs)
print(compiled(inputs).shape)

cost = compiled.loaded[0].cost()
print(f"modelled: {cost.call_ns / 1e3:.1f} µs a call "
      f"({cost.call_low_ns / 1e3:.1f} to {cost.call_high_ns / 1e3:.1f})")  # fmt: skip
