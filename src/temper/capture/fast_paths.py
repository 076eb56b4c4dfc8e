"""torch's fused encoder layers as the layers that they are made of.

Without gradients ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` call one operator for
everything. The chip has its parts, so capture takes it apart.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

Tensor = torch.Tensor
# What a mask of the fused operators is over: queries and keys, or the keys of each sequence.
_OVER_QUERIES, _OVER_SEQUENCES = 0, 1


def _open_keys(mask: Tensor | None, mask_type: int | None) -> Tensor | None:
    """The fused operators close a key where the mask is not zero; attention opens where true."""
    if mask is None:
        return None
    closed = mask if mask.dtype is torch.bool else mask != 0
    if mask_type == _OVER_SEQUENCES:
        closed = closed[:, None, None, :]
    elif mask_type == _OVER_QUERIES:
        closed = closed[None, None]
    return ~closed


def _heads(x: Tensor, count: int) -> Tensor:
    batch, rows, width = x.shape
    return x.view(batch, rows, count, width // count).transpose(1, 2)


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """aten::_transformer_encoder_layer_fwd."""
    open_keys = _open_keys(mask, mask_type)

    def attend(x: Tensor) -> Tensor:
        q, k, v = (_heads(t, num_heads) for t in F.linear(x, qkv_weight, qkv_bias).chunk(3, -1))
        made = F.scaled_dot_product_attention(q, k, v, attn_mask=open_keys)
        return F.linear(made.transpose(1, 2).reshape(x.shape), proj_weight, proj_bias)

    def forward(x: Tensor) -> Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = F.gelu(hidden) if use_gelu else F.relu(hidden)
        return F.linear(hidden, ffn_weight_2, ffn_bias_2)

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), weight, bias, eps)

    if norm_first:
        src = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return src + forward(norm(src, norm_weight_2, norm_bias_2))
    src = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(src + forward(src), norm_weight_2, norm_bias_2)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """aten::_native_multi_head_attention."""
    open_keys = _open_keys(mask, mask_type)
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    q, k, v = (
        _heads(F.linear(x, w, b), num_head)
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    if need_weights:
        scores = (q * (embed_dim // num_head) ** -0.5) @ k.transpose(-1, -2)
        if open_keys is not None:
            scores = scores.masked_fill(~open_keys, float("-inf"))
        shares = scores.softmax(-1)
        made = shares @ v
        shares = shares.mean(1) if average_attn_weights else shares
    else:
        made = F.scaled_dot_product_attention(q, k, v, attn_mask=open_keys)
        shares = query.new_empty(0)
    joined = made.transpose(1, 2).reshape(query.shape)
    return F.linear(joined, proj_weight, proj_bias), shares


FAST_PATHS: dict[Any, Any] = {
    torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer,
    torch.ops.aten._native_multi_head_attention.default: attention,
}
