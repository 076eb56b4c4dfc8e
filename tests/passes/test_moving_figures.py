"""Modelled device time and the share of it that moves data, held by name.

`python tests/passes/test_moving_figures.py` writes the figures anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from temper.compiler.moving import moving_share
from temper.compiler.pipeline import compile_model
from temper.cost import estimate

FIGURES = Path(__file__).with_name("moving_figures.json")


class Stage(nn.Module):
    """A stage of ConvNeXt: patches of two, a depthwise convolution, rows."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 64, 4, 4), nn.Conv2d(64, 128, 2, 2)
        self.depth = nn.Conv2d(128, 128, 7, padding=3, groups=128)
        self.norm, self.up, self.back = nn.LayerNorm(128), nn.Linear(128, 512), nn.Linear(512, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(self.stem(x))
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return (x + self.back(F.gelu(self.up(y))).permute(0, 3, 1, 2)).mean((2, 3))


class Pairs(nn.Module):
    """Dot products of a dense feature and eight tables."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(100, 32) for _ in range(8))
        self.bottom, self.top = nn.Linear(13, 32), nn.Linear(32 + 36, 64)
        self.register_buffer("lower", torch.tril_indices(9, 9, -1)[0] * 9
                             + torch.tril_indices(9, 9, -1)[1])  # fmt: skip

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bottom(dense))
        t = torch.stack([x, *(table(ids[:, i]) for i, table in enumerate(self.tables))], 1)
        z = torch.bmm(t, t.transpose(1, 2)).flatten(1)
        return self.top(torch.cat((x, z.index_select(1, self.lower)), 1))


class Factors(nn.Module):
    """A factorization machine and a layer over six tables."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(100, 16) for _ in range(6))
        self.layer = nn.Linear(6 * 16, 64)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        e = torch.stack([table(ids[:, i]) for i, table in enumerate(self.tables)], 1)
        pairs = (e.sum(1) ** 2 - (e * e).sum(1)).sum(1, keepdim=True)
        return self.layer(e.flatten(1)) + pairs


class Shuffle(nn.Module):
    """A pixel shuffle between convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.wide = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 128, 3, padding=1)
        self.out = nn.Conv2d(32, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(F.pixel_shuffle(self.wide(self.stem(x)), 2))


class Tokens(nn.Module):
    """A class token and two encoder layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.token = nn.Conv2d(3, 128, 8, 8), nn.Parameter(torch.zeros(1, 1, 128))
        layer = nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.stem(x).flatten(2).transpose(1, 2)
        return self.layers(torch.cat((self.token.expand(x.shape[0], -1, -1), rows), 1))


CASES = {
    "ConvNeXt stage, batch 4": (Stage, lambda: (torch.zeros(4, 3, 112, 112),)),
    "products of pairs, batch 512": (
        Pairs, lambda: (torch.zeros(512, 13), torch.zeros(512, 8, dtype=torch.int64)),
    ),
    "factors of six tables, batch 256": (
        Factors, lambda: (torch.zeros(256, 6, dtype=torch.int64),),
    ),
    "pixel shuffle, 64x64": (Shuffle, lambda: (torch.zeros(1, 3, 64, 64),)),
    "class token, batch 8": (Tokens, lambda: (torch.zeros(8, 3, 112, 112),)),
}  # fmt: skip


def figure(name: str) -> dict[str, float]:
    make, inputs = CASES[name]
    torch.manual_seed(0)
    args = tuple(a.bfloat16() if a.is_floating_point() else a for a in inputs())
    options = {"optimization_level": 2, "chip": "n150", "enable_trace": True,
               "compile_cache": False}  # fmt: skip
    program = compile_model(make().eval().bfloat16(), args, options=options).graphs[0].program
    cost = estimate(program, traced=True)
    share = moving_share([(program, cost)])
    return {"device_ms": round(cost.device_ns / 1e6, 5), "moving": round(share, 4)}


@pytest.mark.parametrize("name", CASES)
def test_no_program_moves_more_than_it_did_unnoticed(name: str) -> None:
    now, held = figure(name), json.loads(FIGURES.read_text())[name]
    again = "if that is right: python tests/passes/test_moving_figures.py"
    assert now["device_ms"] <= 1.05 * held["device_ms"], f"{name} is modelled slower; {again}"
    assert now["moving"] <= held["moving"] + 0.02, f"{name} moves more; {again}"


if __name__ == "__main__":
    FIGURES.write_text(json.dumps({name: figure(name) for name in CASES}, indent=2) + "\n")
