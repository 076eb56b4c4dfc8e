"""Attention over windows of an image, shifted or not, between picks of rows."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from temper.compiler import pipeline
from temper.compiler.pipeline import Built, compile_model
from temper.cost import estimate
from temper.formats import pcc
from temper.targets.virtual.executor import Executor

SIDE, WINDOW, WIDTH = 14, 7, 64


class Block(nn.Module):
    """Windows, attention with a bias, and back, as a Swin block has them."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        rows = WINDOW * WINDOW
        self.bias = nn.Parameter(torch.randn(1, 2, rows, rows))
        self.norm, self.shift = nn.LayerNorm(WIDTH), shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, n = x.shape[0], SIDE // WINDOW
        y = self.norm(x).view(batch, SIDE, SIDE, WIDTH)
        y = y.roll((-self.shift, -self.shift), (1, 2)) if self.shift else y
        y = y.view(batch, n, WINDOW, n, WINDOW, WIDTH).transpose(2, 3)
        y = y.reshape(batch * n * n, WINDOW * WINDOW, WIDTH)
        q, k, v = self.qkv(y).unflatten(-1, (3, 2, WIDTH // 2)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias)
        y = self.out(y.transpose(1, 2).flatten(2))
        y = y.view(batch, n, n, WINDOW, WINDOW, WIDTH).transpose(2, 3)
        y = y.reshape(batch, SIDE, SIDE, WIDTH)
        y = y.roll((self.shift, self.shift), (1, 2)) if self.shift else y
        return x + y.view(batch, SIDE * SIDE, WIDTH)


def built(model: nn.Module, x: torch.Tensor) -> Built:
    ready = (model.eval().bfloat16(), (x.bfloat16(),))
    return compile_model(*ready, options={"optimization_level": 1}).graphs[0]


@pytest.mark.parametrize(("shift", "batch"), [(0, 1), (3, 2)])
def test_windows_are_whole_tiles_between_the_picks_of_their_rows(
    shift: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(batch, SIDE * SIDE, WIDTH, generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        expected = Block(shift).eval()(x)
    ours = built(Block(shift), x)
    kept = tuple(p for p in pipeline.GRAPH_PASSES if p.name != "pad-windows")
    monkeypatch.setattr(pipeline, "GRAPH_PASSES", kept)
    before = built(Block(shift), x)
    sdpa = next(op for op in ours.program.ops if op.kind == "Sdpa")
    assert ours.program.spec(sdpa.inputs[0]).shape[2] == 64
    results = [
        Executor(b.program, b.weights).run([x.bfloat16()])[0].float() for b in (ours, before)
    ]
    assert pcc(expected, results[0]) > 0.9995
    worst = [float((r - expected).abs().max()) for r in results]
    assert worst[0] <= 1.01 * worst[1]
    ns = [estimate(b.program, traced=True).device_ns for b in (ours, before)]
    assert ns[0] < ns[1]
