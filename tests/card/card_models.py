"""Small members of the model families that the card target must take."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

BF16 = torch.bfloat16
Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


class MnistCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.f1, self.f2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.max_pool2d(torch.relu(self.c2(torch.relu(self.c1(x)))), 2)
        x = self.f2(torch.relu(self.f1(torch.flatten(x, 1))))
        return torch.log_softmax(x, 1)


def _twice(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, c: int = 32) -> None:
        super().__init__()
        self.d1, self.d2 = _twice(3, c), _twice(c, 2 * c)
        self.pool, self.up = nn.MaxPool2d(2), nn.ConvTranspose2d(2 * c, c, 2, 2)
        self.e1, self.out = _twice(2 * c, c), nn.Conv2d(c, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.d1(x)
        b = self.d2(self.pool(a))
        return self.out(self.e1(torch.cat([self.up(b), a], 1)))


def mnist() -> Made:
    return MnistCnn(), (torch.randn(4, 1, 28, 28, dtype=BF16),), {}


def unet() -> Made:
    return UNet(), (torch.randn(1, 3, 64, 64, dtype=BF16),), {}


def _transformers() -> Any:
    import pytest

    return pytest.importorskip("transformers")


def resnet() -> Made:
    t = _transformers()
    config = t.ResNetConfig(depths=[1, 1, 1, 1])
    return t.ResNetForImageClassification(config), (torch.randn(1, 3, 96, 96, dtype=BF16),), {}


def bert() -> Made:
    t = _transformers()
    model = t.BertModel(t.BertConfig(num_hidden_layers=1, vocab_size=512))
    mask = torch.ones(1, 64, dtype=torch.long)
    return model, (torch.randint(0, 500, (1, 64)),), {"attention_mask": mask}


def vit() -> Made:
    t = _transformers()
    config = t.ViTConfig(num_hidden_layers=1, image_size=112)
    return t.ViTForImageClassification(config), (torch.randn(1, 3, 112, 112, dtype=BF16),), {}


def _llama(length: int) -> Made:
    t = _transformers()
    config = t.LlamaConfig(
        hidden_size=256, intermediate_size=704, num_hidden_layers=1, num_attention_heads=8,
        num_key_value_heads=4, vocab_size=512, use_cache=False,
    )  # fmt: skip
    return t.LlamaForCausalLM(config), (torch.randint(0, 500, (1, length)),), {}


def llama_prefill() -> Made:
    return _llama(64)


def llama_decode() -> Made:
    return _llama(1)


def segformer() -> Made:
    t = _transformers()
    config = t.SegformerConfig(depths=[1, 1, 1, 1])
    return t.SegformerForSemanticSegmentation(config), (torch.randn(1, 3, 64, 64, dtype=BF16),), {}


def efficientnet() -> Made:
    t = _transformers()
    config = t.EfficientNetConfig(
        width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280, image_size=64,
        in_channels=[32, 16, 24], out_channels=[16, 24, 80], kernel_sizes=[3, 3, 5],
        strides=[1, 2, 2], num_block_repeats=[1, 2, 1], expand_ratios=[1, 6, 6],
        depthwise_padding=[],
    )  # fmt: skip
    return (
        t.EfficientNetForImageClassification(config),
        (torch.randn(1, 3, 64, 64, dtype=BF16),),
        {},
    )


FAMILIES = {f.__name__: f for f in (mnist, unet, resnet, bert, vit, llama_prefill, llama_decode,
                                    segformer, efficientnet)}  # fmt: skip
