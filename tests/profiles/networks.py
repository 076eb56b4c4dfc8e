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


class Resnext(nn.Module):
    """A bottleneck with grouped convolutions and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.widen = nn.Conv2d(32, 64, 1), nn.Conv2d(64, 32, 1)
        self.grouped = nn.Conv2d(64, 64, 3, padding=1, groups=8)
        self.norm = nn.BatchNorm2d(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.norm(self.grouped(torch.relu(self.narrow(x)))))
        return torch.relu(x + self.widen(inner)).mean((2, 3))


class Dlrm(nn.Module):
    """Products of every pair of embeddings, as the recommender of the MLPerf suite has them."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(100, 32) for _ in range(7))
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(32 + 64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        rows = torch.stack([x, *(t(categories[:, i]) for i, t in enumerate(self.tables))], 1)
        products = torch.bmm(rows, rows.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.top(torch.cat([x, products], 1)))


def other_networks() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    """Five that nothing here was made for, small: three of transformers, two of torch alone."""
    from transformers import (
        ConvNextConfig,
        ConvNextModel,
        DistilBertConfig,
        DistilBertModel,
        WhisperConfig,
    )
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    torch.manual_seed(0)
    half = torch.bfloat16
    distil = DistilBertConfig(vocab_size=100, dim=64, n_layers=1, n_heads=4, hidden_dim=128)
    convnext = ConvNextConfig(image_size=32, num_stages=2, hidden_sizes=[16, 32], depths=[1, 1])
    whisper = WhisperConfig(
        encoder_layers=1, d_model=64, encoder_attention_heads=4, encoder_ffn_dim=128,
        max_source_positions=32, num_mel_bins=32,
    )  # fmt: skip
    return {
        "distilbert": (DistilBertModel(distil), (torch.randint(0, 100, (2, 32)),)),
        "convnext": (ConvNextModel(convnext), (torch.randn(1, 3, 32, 32, dtype=half),)),
        "whisper": (WhisperEncoder(whisper), (torch.randn(1, 32, 64, dtype=half),)),
        "resnext": (Resnext(), (torch.randn(1, 32, 16, 16, dtype=half),)),
        "dlrm": (Dlrm(), (torch.randn(32, 13, dtype=half), torch.randint(0, 100, (32, 7)))),
    }


def profile_networks(base: Path) -> dict[str, Session]:
    """A run folder for each network at each level, of five others at level 2: two calls with a
    signpost between them."""
    sessions = {}
    known = {name: (LEVELS, *made) for name, made in networks().items()}
    others = {name: ((2,), *made) for name, made in other_networks().items()}
    for name, (levels, model, inputs) in {**known, **others}.items():
        ready = model.eval().to(torch.bfloat16)
        for level in levels:
            compiled = temper.compile(ready, chip="n150", level=level)
            with torch.no_grad(), temper.profile(base / f"{name}_{level}") as session:
                compiled(*inputs)
                temper.signpost("warm")
                compiled(*inputs)
            sessions[f"{name}_{level}"] = session
    return sessions
