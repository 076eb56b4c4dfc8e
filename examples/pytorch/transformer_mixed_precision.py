"""A transformer whose weights take different formats: block float but for what is sensitive.

temper run examples/pytorch/transformer_mixed_precision.py
"""

from __future__ import annotations

import torch
from torch import nn
from tt_torch import apply_weight_dtype_overrides

import temper
from temper.formats import pcc


class Block(nn.Module):
    """Attention and a feed-forward network, each with its norm and residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


# Wide enough, and with few enough tokens, that reading the weights is what takes the time.
WIDTH = 768

CONFIGURATIONS: dict[str, dict[str, str] | None] = {
    "bfloat16": None,
    "all bfloat8_b": {"default": "bfp_bf8"},
    "all bfloat4_b": {"default": "bfp_bf4"},
    "feed-forward bfloat4_b, rest bfloat8_b": {"default": "bfp_bf8", "*.up.weight": "bfp_bf4",
                                                "*.down.weight": "bfp_bf4"},
}  # fmt: skip


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 32, WIDTH)
    golden = None
    for name, config in CONFIGURATIONS.items():
        torch.manual_seed(1)
        model = nn.Sequential(*(Block(WIDTH, 12) for _ in range(2))).eval()
        with torch.no_grad():
            golden = model(x) if golden is None else golden
            model = model.to(torch.bfloat16)
            if config is not None:
                apply_weight_dtype_overrides(model, config)
            compiled = temper.compile(model, level=1)
            found = compiled(x.to(torch.bfloat16)).float()
        cost = compiled.loaded[0].cost(traced=True)
        print(f"{name:40} {cost.device_ns / 1e3:7.1f} µs modelled, "
              f"PCC {pcc(found.numpy(), golden.numpy()):.5f}")  # fmt: skip


if __name__ == "__main__":
    main()
