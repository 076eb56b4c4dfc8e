"""MNIST with all five techniques: level, warm-up, formats, trace, batch.

    temper run examples/pytorch/mnist_performant.py [--batch 32]

The imports are those of a card's machine; without the card `temper run` stands in for them.
With `--clock device` the times shown are modelled device and transfer time, and measured time of
what the script does in between.
"""

from __future__ import annotations

import argparse
import os
import time

# Room for the recorded commands; read when the runtime starts.
os.environ.setdefault("TT_RUNTIME_TRACE_REGION_SIZE", "10000000")

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch import nn
from tt_torch import apply_weight_dtype_overrides

WARMUP = 3
ITERATIONS = 32


class MnistCnn(nn.Module):
    """Two convolutions, two linear layers, ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(64 * 12 * 12, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        x = torch.max_pool2d(x, 2)
        x = torch.flatten(x, 1)
        x = torch.relu(self.fc1(x))
        return torch.log_softmax(self.fc2(x), dim=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32)  # 5. batch size
    batch = parser.parse_args().batch

    torch.manual_seed(0)
    xr.set_device_type("TT")
    device = xm.xla_device()

    torch_xla.set_custom_compile_options(
        {
            "optimization_level": 1,  # 1. const-eval and fusion
            "enable_trace": "true",  # 4. replay the recorded commands
        }
    )

    # 3. bfloat16 everywhere, and the largest matmul weight in bfloat8_b.
    model = MnistCnn().eval().to(torch.bfloat16)
    images = torch.randn(batch, 1, 28, 28, dtype=torch.bfloat16)
    expected = model.float()(images.float())
    model = model.to(torch.bfloat16)
    apply_weight_dtype_overrides(model, {"fc1.weight": "bfp_bf8"})

    compiled = torch.compile(model.to(device), backend="tt")
    images = images.to(device)

    with torch.no_grad():
        # 2. The first call compiles and uploads, the second records the trace.
        for number in range(WARMUP):
            start = time.perf_counter()
            output = compiled(images).to("cpu")
            print(f"warm-up {number + 1}: {(time.perf_counter() - start) * 1e3:9.2f} ms")

        start = time.perf_counter()
        for _ in range(ITERATIONS):
            output = compiled(images).to("cpu")
        elapsed = time.perf_counter() - start

    print(f"steady:    {elapsed / ITERATIONS * 1e3:9.2f} ms a call of {batch}")
    print(f"throughput: {batch * ITERATIONS / elapsed:,.0f} samples/s")
    both = torch.stack([output.float().flatten(), expected.flatten()])
    print(f"PCC against float32 on the host: {torch.corrcoef(both)[0, 1].item():.5f}")


if __name__ == "__main__":
    main()
