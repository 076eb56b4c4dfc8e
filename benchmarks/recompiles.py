"""Memory of a process that compiles one model again and again, measured on this host.

A number of the model changes before every call, so that each call compiles. What is kept is
bounded (32 variants of a function): past the bound memory has to stay within 5 per cent.

    python benchmarks/recompiles.py                # 1,000 recompiles
    python benchmarks/recompiles.py 200 --json out.json
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from pathlib import Path

import psutil
import torch
from torch import nn

import temper
from temper.frontdoor.region import KEPT_VARIANTS

ALLOWED = 0.05


class Scaled(nn.Module):
    """Two layers and a number that is part of the program."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.scale = nn.Linear(16, 32), nn.Linear(32, 4), 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The scaled result of both layers."""
        made: torch.Tensor = self.last(torch.relu(self.first(x))) * self.scale
        return made


def main() -> int:
    """Measure, print, and fail where memory grew by more than is allowed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recompiles", type=int, nargs="?", default=1000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    model, x = Scaled().eval(), torch.randn(2, 16)
    compiled, process = temper.compile(model), psutil.Process()
    rows: list[dict[str, float]] = []
    with torch.no_grad():
        for count in range(given.recompiles + 1):
            model.scale = count + 1
            compiled(x)
            if count >= KEPT_VARIANTS and (count % 100 == 0 or count == KEPT_VARIANTS * 2):
                gc.collect()
                rows.append(
                    {"recompiles": count, "rss_mb": process.memory_info().rss / 1e6,
                     "objects": len(gc.get_objects())}
                )  # fmt: skip
                print("{recompiles:6d} recompiles {rss_mb:8.1f} MB {objects:9d} objects".format(
                    **rows[-1]), flush=True)  # fmt: skip
    growth = rows[-1]["rss_mb"] / rows[0]["rss_mb"] - 1
    print(f"measured growth past the bound: {growth:+.1%} (allowed {ALLOWED:.0%})")
    if given.json:
        given.json.write_text(json.dumps({"rows": rows, "growth": growth}, indent=2))
    return int(growth > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
