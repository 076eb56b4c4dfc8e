"""Random convolutional networks and transformers, by seed."""

from __future__ import annotations

import random

import torch
from torch import nn
from torch.nn import functional as F

BOARDS = ("e75", "e150", "n150", "n300", "p100", "p150")


class Cnn(nn.Module):
    """A stem, then steps of many kinds: residual, strided, depthwise, pointwise, up and join."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        width = rng.choice([16, 32, 64])
        self.stem = nn.Conv2d(3, width, *rng.choice([(3, 1, 1), (3, 2, 1), (7, 2, 3)]))
        self.kinds = [
            rng.choice(["residual", "down", "depthwise", "pointwise", "up"])
            for _ in range(rng.randint(2, 5))
        ]
        self.steps = nn.ModuleList()
        for kind in self.kinds:
            if kind == "down":
                self.steps.append(nn.Conv2d(width, 2 * width, 3, 2, 1))
                width *= 2
            elif kind == "depthwise":
                self.steps.append(nn.Conv2d(width, width, 3, 1, 1, groups=width))
            elif kind == "pointwise":
                self.steps.append(nn.Conv2d(width, width, 1))
            else:
                self.steps.append(nn.Conv2d(width, width, 3, 1, 1))
        self.norms = nn.ModuleList(nn.BatchNorm2d(step.out_channels) for step in self.steps)
        self.head = nn.Linear(width, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.stem(x))
        for kind, step, norm in zip(self.kinds, self.steps, self.norms, strict=True):
            if kind == "up":
                low = F.max_pool2d(x, 2)
                x = x + F.interpolate(F.relu(norm(step(low))), size=x.shape[2:])
            elif kind == "residual":
                x = F.relu(x + norm(step(x)))
            else:
                x = F.relu6(norm(step(x)))
        return self.head(x.mean((2, 3)))


class Transformer(nn.Module):
    """Layers of torch's own kind on a random width."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.width = rng.choice([64, 96, 256])
        layer = nn.TransformerEncoderLayer(
            self.width, rng.choice([2, 4]), rng.choice([1, 4]) * self.width, 0.0,
            activation=rng.choice(["relu", "gelu"]), batch_first=True,
            norm_first=rng.random() < 0.5,
        )  # fmt: skip
        self.layers = nn.TransformerEncoder(layer, rng.randint(1, 2), enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def random_net(seed: int) -> tuple[nn.Module, torch.Tensor, str]:
    """A model in bfloat16, its input with a batch of 1 to 64, and a board."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    batch = 2 ** rng.randint(0, 6)
    if seed % 2:
        net: nn.Module = Cnn(rng)
        size = rng.choice([32, 48, 96]) if batch > 8 else rng.choice([32, 64, 160])
        x = torch.zeros(batch, 3, size, size)
    else:
        net = Transformer(rng)
        x = torch.zeros(batch, rng.choice([17, 32, 100]), net.width)
    return net.eval().to(torch.bfloat16), x.to(torch.bfloat16), rng.choice(BOARDS)
