"""The ladder: what each rung says that the compiler did."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from temper.tuning.ladder import explain


class Attention(nn.Module):
    """Self attention without projections."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x)


def attention() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Attention(), (torch.zeros(2, 8, 256, 64),)


def test_blocks_of_attention_are_named_where_they_are_chosen() -> None:
    rungs = {rung.name: rung for rung in explain(attention, accuracy=False)}
    assert "attention in blocks of" not in rungs["bfloat16"].did
    assert "attention in blocks of" in rungs["level 1"].did
    assert rungs["level 1"].gain > 1
