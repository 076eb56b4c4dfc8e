"""The tuning guide's fused pipeline: clamp and log as one kernel, against one kernel each.

    temper run --chip e75 examples/tuning_guide/fused_pipeline.py
    temper run --chip e75 --clock device examples/tuning_guide/fused_pipeline.py

Throughput counts input and output bytes. It is measured on this host, or modelled for the card
with `--clock device`; the device times below it are modelled.
"""

from __future__ import annotations

import time

import pybuda
import torch
from pybuda import CompilerConfig, PyBudaModule

WARMUP, ITERATIONS = 10, 100


class FusedPipeline(PyBudaModule):
    """Neg2Zero, then the logarithm."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.clamp(x, min=0.0)
        return torch.log(x + 1e-7)


def main() -> None:
    device = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Grayskull)
    x = torch.randn(64, 4096)
    device_ns = {}
    for fusing in (False, True):
        config = CompilerConfig(
            enable_auto_fusing=fusing, enable_tvm_constant_prop=True, enable_tvm_cpu_fallback=False
        )
        compiled = pybuda.compile(
            FusedPipeline("pipeline"), sample_inputs=(x,), device=device, compiler_cfg=config
        )
        for _ in range(WARMUP):
            output = compiled(x)
        start = time.perf_counter()
        for _ in range(ITERATIONS):
            output = compiled(x)
        elapsed = time.perf_counter() - start
        total = (x.nelement() + output.nelement()) * 4 * ITERATIONS
        (graph,) = compiled.compiled.loaded
        cost = graph.cost(traced=True)
        device_ns[fusing] = cost.device_ns
        print(f"auto fusing {'on ' if fusing else 'off'}: {len(graph.program.ops)} op(s), "
              f"{total / 1e9 / elapsed:6.2f} GB/s, device {cost.device_ns / 1e3:.1f} µs "
              f"modelled")  # fmt: skip
    gain = device_ns[False] / device_ns[True] - 1
    print(f"fusing gains {gain:.0%} of device throughput, modelled; the guide says 20 to 30%")


if __name__ == "__main__":
    main()
