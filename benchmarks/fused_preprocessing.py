"""What fusing two feature operators gains: the tuning guide's "+20-30% throughput", by size.

    python benchmarks/fused_preprocessing.py [--chip n150] [--json]

The guide fuses `clamp(x, 0)` and `log(x + 1e-7)` into one module. Here the same chain is compiled
with and without fusion, at level 1 (tensors in DRAM) and level 2 (in SRAM where it pays), traced
and untraced, in bfloat16. All times are modelled; a gain is samples per second over the unfused
chain's, less one: of the device alone, and of a whole call with its transfers.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch
from torch import nn

from temper.compiler.pipeline import compile_model
from temper.cost import estimate

ROWS = (64, 1024, 16_384, 262_144)
COLUMNS = 32


class Pipeline(nn.Module):
    """Neg2Zero, then a logarithm."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(torch.clamp(x, min=0.0) + 1e-7)


def modelled(chip: str, rows: int, *, level: int, traced: bool, fused: bool) -> dict[str, float]:
    """Device and call microseconds and the number of device ops."""
    options: dict[str, Any] = {
        "chip": chip, "optimization_level": level, "enable_trace": traced, "compile_cache": False,
        "enable_fusing": fused,
    }  # fmt: skip
    x = torch.ones(rows, COLUMNS, dtype=torch.bfloat16)
    program = compile_model(Pipeline().eval(), (x,), None, options).programs[0]
    cost = estimate(program, traced=traced)
    moved = cost.transfer_in_ns + cost.transfer_out_ns
    return {
        "device_us": cost.device_ns / 1000,
        "chip_us": (cost.call_ns - moved) / 1000,
        "call_us": cost.call_ns / 1000,
        "ops": len(program.ops),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chip", default="n150")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = []
    for rows in ROWS:
        for level in (1, 2):
            for traced in (False, True):
                plain, fused = (
                    modelled(asked.chip, rows, level=level, traced=traced, fused=on)
                    for on in (False, True)
                )
                found.append({
                    "rows": rows, "level": level, "traced": traced, "unfused": plain,
                    "fused": fused,
                    **{f"{key}_gain": plain[f"{key}_us"] / fused[f"{key}_us"] - 1
                       for key in ("device", "chip", "call")},
                })  # fmt: skip
                if not asked.json:
                    print(_line(found[-1]), flush=True)
    if asked.json:
        print(json.dumps(found, indent=2))


def _line(row: dict[str, Any]) -> str:
    plain, fused = row["unfused"], row["fused"]
    return (
        f"{row['rows']:8} x {COLUMNS}  level {row['level']}  "
        f"{'traced  ' if row['traced'] else 'untraced'}  "
        f"{plain['ops']:.0f} -> {fused['ops']:.0f} ops  device {plain['device_us']:8.1f} -> "
        f"{fused['device_us']:8.1f} us {row['device_gain']:+.0%}  without transfers "
        f"{row['chip_gain']:+.0%}  call {plain['call_us']:9.1f} -> {fused['call_us']:9.1f} us "
        f"{row['call_gain']:+.0%}"
    )


if __name__ == "__main__":
    main()
