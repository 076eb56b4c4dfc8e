"""Small models as model arguments of the tuning tests."""

from __future__ import annotations

import torch
from torch import nn


def make(batch: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    layers = [nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64)]
    return nn.Sequential(*layers), (torch.randn(batch, 256),)


class Three(nn.Module):
    """Three inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return self.one(x) * z + self.two(y)


def three(batch: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Three(), tuple(torch.randn(batch, 64) for _ in range(3))


def no_batch() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return nn.Linear(64, 64), (torch.randn(4, 64),)


class Noisy(nn.Module):
    """Random, printing, allocating."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("called")
        return self.inner(x + torch.rand(32)) + torch.zeros(32)


def noisy(batch: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Noisy(), (torch.randn(batch, 32),)


class Branching(nn.Module):
    """Python decides on a value, so that no single graph holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.one(x)
        if x.sum().item() > 0:
            x = x + 1
        return self.two(x)


def branching(batch: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Branching(), (torch.randn(batch, 64),)


class Mutating(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1.0) * 2


def mutating(batch: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Mutating(), (torch.randn(batch, 32),)


def raising(batch: int = 1) -> None:
    raise RuntimeError("no weights")


class Recommender(nn.Module):
    """Sums of embedding rows and two layers: one score a sample, between 0 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(1000, 64, mode="sum")
        self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.two(torch.relu(self.one(self.table(ids)))))


def recommender(batch: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Recommender(), (torch.randint(0, 1000, (batch, 8)),)


class Flat(nn.Module):
    """Every output is the same number."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones(x.shape[0], 64) * 3 + 0 * self.one(x)


def flat(batch: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Flat(), (torch.randn(batch, 64),)
