"""The models that benchmarks and examples share: ``MODELS[name](batch) -> (model, inputs)``.

All have random weights from a fixed seed and are float32; callers convert them. Transformers come
from ``transformers`` configurations, the others are written out here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]
MODELS: dict[str, Callable[..., Made]] = {}


def model(name: str) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """Register a maker under a name; it runs with a fixed seed and returns an eval model."""

    def register(make: Callable[..., Made]) -> Callable[..., Made]:
        def seeded(batch: int = 1) -> Made:
            torch.manual_seed(0)
            module, inputs = make(batch)
            return module.eval(), inputs

        MODELS[name] = seeded
        return seeded

    return register


class MnistCnn(nn.Module):
    """Two convolutions, a pool and two linear layers on 28x28 digits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = self.dropout2(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.log_softmax(self.fc2(x), dim=1)


@model("mnist")
def mnist(batch: int) -> Made:
    return MnistCnn(), (torch.randn(batch, 1, 28, 28),)


class Bottleneck(nn.Module):
    """ResNet's 1x1, 3x3, 1x1 block."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResNet50(nn.Module):
    """The 50-layer residual network."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        blocks: list[nn.Module] = []
        inside = 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for index in range(count):
                blocks.append(Bottleneck(inside, width, stride if index == 0 else 1))
                inside = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inside, classes)
        for module in self.modules():  # statistics as after training, so that values stay finite
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)  # type: ignore[union-attr]
                module.running_var.uniform_(0.8, 1.2)  # type: ignore[union-attr]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.stem(x))
        return self.fc(x.mean((2, 3)))


@model("resnet50")
def resnet50(batch: int) -> Made:
    return ResNet50(), (torch.randn(batch, 3, 224, 224),)


def _double(inside: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(),
        nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """A three-level U-Net with transposed convolutions and skip connections."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down1, self.down2 = _double(3, width), _double(width, 2 * width)
        self.middle = _double(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.join2 = _double(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.join1 = _double(2 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        y = self.middle(F.max_pool2d(b, 2))
        y = self.join2(torch.cat((self.up2(y), b), 1))
        y = self.join1(torch.cat((self.up1(y), a), 1))
        return self.head(y)


@model("unet")
def unet(batch: int) -> Made:
    return UNet(), (torch.randn(batch, 3, 64, 64),)


class Dlrm(nn.Module):
    """A recommender: dense features, embedded categories, their dot products, two towers."""

    def __init__(self, categories: int = 26, rows: int = 1000, width: int = 16) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(categories))
        self.bottom = nn.Sequential(
            nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU()
        )  # fmt: skip
        pairs = (categories + 1) * categories // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
        one, two = torch.tril_indices(categories + 1, categories + 1, -1)
        self.register_buffer("pairs", one * (categories + 1) + two)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        rows = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        stacked = torch.stack([x, *rows], 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2)).flatten(1)
        chosen = torch.index_select(products, 1, self.pairs)  # type: ignore[arg-type]
        return torch.sigmoid(self.top(torch.cat((x, chosen), 1)))


@model("dlrm")
def dlrm(batch: int) -> Made:
    return Dlrm(), (torch.randn(batch, 13), torch.randint(0, 1000, (batch, 26)))


@model("autoencoder")
def autoencoder(batch: int) -> Made:
    sizes = (784, 256, 64, 16, 64, 256, 784)
    layers: list[nn.Module] = []
    for inside, out in pairwise(sizes):
        layers += [nn.Linear(inside, out), nn.ReLU()]
    return nn.Sequential(*layers[:-1], nn.Sigmoid()), (torch.rand(batch, 784),)


class UnrolledLstm(nn.Module):
    """An LSTM cell stepped over a short sequence."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = torch.zeros_like(x[:, 0])
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h, c))
        return self.head(h)


@model("lstm")
def lstm(batch: int) -> Made:
    return UnrolledLstm(), (torch.randn(batch, 8, 64),)


class _Output(nn.Module):
    """A transformers model that returns one tensor."""

    def __init__(self, inner: Any, name: str) -> None:
        super().__init__()
        self.inner, self.name = inner, name

    def forward(self, *inputs: torch.Tensor) -> Any:
        return getattr(self.inner(*inputs), self.name)


@model("bert")
def bert(batch: int) -> Made:
    from transformers import BertConfig, BertModel

    inner = BertModel(BertConfig(), add_pooling_layer=False)
    return _Output(inner, "last_hidden_state"), (torch.randint(0, 30000, (batch, 128)),)


@model("llama")
def llama(batch: int) -> Made:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=8192, hidden_size=768, intermediate_size=2048, num_hidden_layers=4,
        num_attention_heads=12, num_key_value_heads=4, max_position_embeddings=512,
        use_cache=False,
    )  # fmt: skip
    return _Output(LlamaModel(config), "last_hidden_state"), (torch.randint(0, 8192, (batch, 256)),)


@model("decode")
def decode(batch: int) -> Made:
    """One token for each user, as a decode step reads its weights: bound by DRAM."""
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=1024, hidden_size=2048, intermediate_size=8192, num_hidden_layers=2,
        num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=512,
        use_cache=False,
    )  # fmt: skip
    return _Output(LlamaModel(config), "last_hidden_state"), (torch.randint(0, 1024, (batch, 1)),)


@model("vit")
def vit(batch: int) -> Made:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=192, num_hidden_layers=4, num_attention_heads=3, intermediate_size=768
    )
    inner = ViTModel(config, add_pooling_layer=False)
    return _Output(inner, "last_hidden_state"), (torch.randn(batch, 3, 224, 224),)
