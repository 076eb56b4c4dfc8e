"""Profiling: where the device time of a model goes, and what to change.

    temper run examples/pytorch/profiling.py [FOLDER]

The same from outside: temper profile "temper run script.py", or tt_profile "...".
"""

from __future__ import annotations

import sys
import tempfile

import torch
from torch import nn
from tracy import signpost

import temper


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="temper-profile-")
    model = nn.Sequential(
        nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 512)
    ).eval()
    compiled = temper.compile(model.to(torch.bfloat16), level=0)
    x = torch.randn(64, 512, dtype=torch.bfloat16)
    temper.warmup(compiled, x)
    with temper.profile(folder) as run:
        signpost("steady")
        for _ in range(3):
            compiled(x)
    for op in run.top(3):
        print(op)
    print(f"next: temper report {folder}")


if __name__ == "__main__":
    main()
