"""A small CNN for 28x28 digits, as a model argument: ``examples/models/mnist.py:make``."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class MnistCnn(nn.Module):
    """Two convolutions, a pool and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def make(batch: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model with random weights and a batch of random digits."""
    torch.manual_seed(0)
    model = MnistCnn().eval().to(torch.bfloat16)
    return model, (torch.rand(batch, 1, 28, 28, dtype=torch.bfloat16),)
