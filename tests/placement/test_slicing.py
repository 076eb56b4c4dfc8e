"""Windows too large for SRAM are cut into slices that give the same numbers."""

from __future__ import annotations

import torch

from temper.compiler.pipeline import compile_model
from temper.targets.virtual.executor import Executor


class Wide(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def test_a_batch_without_divisors_is_cut_into_few_slices_and_a_smaller_last_one() -> None:
    torch.manual_seed(0)
    model, images = Wide().eval(), torch.randn(1999, 1, 28, 28)  # a prime number of them
    compiled = compile_model(model, (images,), options={"optimization_level": 2})
    program = compiled.programs[0]
    slices = [op.attr("batch") for op in program.ops if op.kind == "Conv2d"]
    assert sum(slices) == 1999
    assert 1 < len(slices) < 100
    assert slices[-1] < slices[0]
    (found,) = Executor(program, compiled.weights).run([images])
    torch.testing.assert_close(found.float(), model(images), atol=0.05, rtol=0.02)
