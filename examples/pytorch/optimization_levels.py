"""Technique 1: what each optimization level changes, without running the model.

temper run examples/pytorch/optimization_levels.py
"""

from __future__ import annotations

import torch
from torch import nn

from temper.compiler.pipeline import compile_model
from temper.cost import estimate


def make() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    ).eval().to(torch.bfloat16)  # fmt: skip


def main() -> None:
    model, images = make(), torch.randn(8, 3, 32, 32, dtype=torch.bfloat16)
    print("level  ops  in SRAM  modelled device time")
    for level in (0, 1, 2):
        (program,) = compile_model(model, (images,), options={"optimization_level": level}).programs
        cost = estimate(program)
        placed = sum(program.spec(op.outputs[0]).memory.buffer == "sram" for op in program.ops)
        band = f"{cost.device_low_ns / 1e3:,.0f} to {cost.device_high_ns / 1e3:,.0f}"
        print(
            f"{level:5}  {len(program.ops):3}  {placed:7}  {cost.device_ns / 1e3:,.0f} µs ({band})"
        )
    print("convolutions work on shards in SRAM at every level; level 2 keeps results there too")


if __name__ == "__main__":
    main()
