"""Small networks of three kinds, and real profiles of them: what other tools have to open."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import temper
from temper.frontdoor.session import Session

LEVELS = (0, 1, 2)


class Convolutions(nn.Module):
    """Convolution, batch norm, pool, strided and depthwise convolution, head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.pool = nn.MaxPool2d(2)
        self.down = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.depthwise(torch.relu(self.down(self.pool(self.stem(x)))))
        return self.head(x.mean((2, 3)))


class Encoder(nn.Module):
    """Embedding and one layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 64)
        self.layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
        self.head = nn.Linear(64, 100)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embedding(tokens)))


class Recommender(nn.Module):
    """Dense features and bags of categories."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(500, 32, mode="sum") for _ in range(3))
        self.dense = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(4 * 32, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())

    def forward(self, dense: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        found = [bag(categories[:, i]) for i, bag in enumerate(self.bags)]
        return self.top(torch.cat([self.dense(dense), *found], 1))


def networks() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    """A network of each kind with inputs for it."""
    torch.manual_seed(0)
    half = torch.bfloat16
    return {
        "cnn": (Convolutions(), (torch.randn(2, 3, 32, 32, dtype=half),)),
        "transformer": (Encoder(), (torch.randint(0, 100, (2, 32)),)),
        "recommender": (
            Recommender(),
            (torch.randn(32, 13, dtype=half), torch.randint(0, 500, (32, 3, 4))),
        ),
    }


def profile_networks(base: Path) -> dict[str, Session]:
    """A run folder for each network at each level: two calls with a signpost between them."""
    sessions = {}
    for name, (model, inputs) in networks().items():
        ready = model.eval().to(torch.bfloat16)
        for level in LEVELS:
            compiled = temper.compile(ready, chip="n150", level=level)
            with torch.no_grad(), temper.profile(base / f"{name}_{level}") as session:
                compiled(*inputs)
                temper.signpost("warm")
                compiled(*inputs)
            sessions[f"{name}_{level}"] = session
    return sessions
