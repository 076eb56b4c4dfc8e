"""Technique 3: bfloat16 and block float weights, what they gain and what they cost.

temper run examples/pytorch/data_formats.py
"""

from __future__ import annotations

import torch
from torch import nn

import temper
from temper.formats import pcc

SETTINGS: dict[str, dict[str, str]] = {
    "bfloat16": {},
    "weights in bfloat8_b": {"experimental_weight_dtype": "bfp_bf8"},
    "weights in bfloat4_b": {"experimental_weight_dtype": "bfp_bf4"},
}


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).eval()
    x = torch.randn(32, 1024)
    with torch.no_grad():
        golden = model(x)
        model = model.to(torch.bfloat16)
        for name, options in SETTINGS.items():
            compiled = temper.compile(model, level=1, **options)
            found = compiled(x.to(torch.bfloat16)).float()
            cost = compiled.loaded[0].cost(traced=True)
            print(f"{name:22} {cost.device_ns / 1e3:7.1f} µs modelled, "
                  f"PCC {pcc(found.numpy(), golden.numpy()):.5f} against float32")  # fmt: skip


if __name__ == "__main__":
    main()
