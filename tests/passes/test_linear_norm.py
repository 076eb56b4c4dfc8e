"""Batch norm behind a linear layer: folded into its weight, its rows regrouped or not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from temper.compiler.pipeline import compile_model
from temper.formats import pcc
from temper.targets.virtual.executor import Executor


class Normed(nn.Module):
    """A linear layer and a norm over its features, as LeViT and tabular networks have them."""

    def __init__(self, rows: bool) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layer, self.norm, self.rows = nn.Linear(64, 96, bias=rows), nn.BatchNorm1d(96), rows
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)
        nn.init.uniform_(self.norm.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return self.norm(y) if self.rows else self.norm(y.flatten(0, 1)).reshape_as(y)


@pytest.mark.parametrize(("rows", "shape"), [(True, (40, 64)), (False, (2, 20, 64))])
def test_a_norm_over_features_goes_into_the_layer(rows: bool, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = Normed(rows).eval()(x)
    ready = (Normed(rows).eval().bfloat16(), (x.bfloat16(),))
    built = compile_model(*ready, options={"optimization_level": 1}).graphs[0]
    assert {op.kind for op in built.program.ops} <= {"Matmul", "Reshape"}
    result = Executor(built.program, built.weights).run([x.bfloat16()])[0]
    assert pcc(expected, result.float()) > 0.9999
