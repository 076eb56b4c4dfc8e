"""Ops of ``torch.ops.tt`` for long contexts: latent, chunked and sparse attention, as plain torch.

Keys of latent attention (MLA) hold the value in their first columns. Sparse attention (DSA) is
three ops: a score of every key, the best keys of each row, and attention over those alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.nn import functional as F

from temper import chips
from temper.errors import UsageError
from temper.options import resolve

Tensor = torch.Tensor
# What stands where a row has fewer keys to see than it may keep: all bits of 32.
TOPK_LARGE_INDICES_SENTINEL = 0xFFFFFFFF
_MOST_KEPT = 2048


def gathered(blocks: Tensor, page_table: Tensor) -> Tensor:
    """A paged cache as (users, heads, rows, width), its blocks in the order of the page table."""
    users, pages = page_table.shape
    heads, block, width = blocks.shape[1:]
    found = blocks[page_table.reshape(-1).long()].reshape(users, pages, heads, block, width)
    return found.transpose(1, 2).reshape(users, heads, pages * block, width)


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a key is seen, minus infinity elsewhere."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(
        ~seen, float("-inf")
    )


def flash_mla_prefill(
    query: Tensor, key: Tensor, head_dim_v: int, value: Tensor | None = None,
    attn_mask: Tensor | None = None, is_causal: bool = True, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Attention whose values are the first columns of the keys unless they are given."""
    if attn_mask is not None and is_causal:
        raise UsageError("tt::flash_mla_prefill takes a mask or is_causal, not both")
    return _attend(query, key, value, head_dim_v, attn_mask, is_causal, scale)


def paged_flash_mla_decode(
    query: Tensor, key: Tensor, head_dim_v: int, page_table: Tensor, value: Tensor | None = None,
    is_causal: bool = True, attn_mask: Tensor | None = None, cur_pos_tensor: Tensor | None = None,
    attention_sink: Tensor | None = None, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """One row a user, (1, users, heads, width), against a paged cache of latents."""
    if not is_causal or attn_mask is not None or attention_sink is not None:
        raise UsageError(
            "tt::paged_flash_mla_decode: the chip's op takes is_causal=True alone, without a mask "
            "or a sink",
            try_="tt::sparse_sdpa over the keys that the mask leaves",
        )
    if cur_pos_tensor is None:
        raise UsageError("tt::paged_flash_mla_decode with is_causal needs cur_pos_tensor")
    _, users, heads, width = query.shape
    keys = gathered(key, page_table)
    values = None if value is None else gathered(value, page_table)
    at = torch.arange(keys.shape[-2], device=query.device)
    mask = additive(at <= cur_pos_tensor.reshape(-1, 1, 1, 1), query.dtype)
    rows = query.reshape(users, heads, 1, width)
    made = _attend(rows, keys, values, head_dim_v, mask, False, scale)
    return made.reshape(1, users, heads, head_dim_v)


def chunked_scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, page_table: Tensor, chunk_start_idx: Tensor,
    scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Rows of a later part of the prompt against everything before them in a paged cache."""
    keys, values = gathered(key, page_table), gathered(value, page_table)
    rows = torch.arange(query.shape[-2], device=query.device).reshape(-1, 1)
    at = torch.arange(keys.shape[-2], device=query.device)
    seen = at <= rows + chunk_start_idx.reshape(-1, 1, 1, 1)
    return _attend(query, keys, values, values.shape[-1], additive(seen, query.dtype), False, scale)


def _attend(
    query: Tensor, key: Tensor, value: Tensor | None, width: int, mask: Tensor | None,
    is_causal: bool, scale: float | None,
) -> Tensor:  # fmt: skip
    values = key[..., :width] if value is None else value
    return F.scaled_dot_product_attention(
        query, key, values, mask, is_causal=is_causal, scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )  # fmt: skip


def indexer_score(query: Tensor, key: Tensor, weights: Tensor, chunk_start_idx: int = 0) -> Tensor:
    """Each key's score for each row: heads' positive products, weighted and summed.

    Keys behind a row (row ``s`` is at position ``chunk_start_idx + s``) score minus infinity.
    """
    products = torch.relu(query.float() @ key.float().transpose(-2, -1))
    scores = (products * weights.float()).sum(1, keepdim=True)
    at = torch.arange(key.shape[-2], device=query.device)
    rows = torch.arange(query.shape[-2], device=query.device).reshape(-1, 1)
    return scores.masked_fill(at > rows + chunk_start_idx, float("-inf")).to(query.dtype)


def indexer_score_dsa(
    query: Tensor, key: Tensor, weights: Tensor, chunk_start_idx: int = 0
) -> Tensor:
    """``indexer_score`` as the chip's kernel takes it: bfloat16 alone."""
    if query.dtype is not torch.bfloat16:
        raise UsageError(
            "tt::indexer_score_dsa takes bfloat16", given=str(query.dtype).removeprefix("torch.")
        )
    return indexer_score(query, key, weights, chunk_start_idx)


def topk_large_indices(input_tensor: Tensor, k: int) -> Tensor:
    """Where the k largest of each row are, largest first; the sentinel for minus infinity."""
    told = f"tt::topk_large_indices: k is {k}"
    if k <= 0:
        raise UsageError(f"{told}, which is not positive")
    if k % 16 and k > 16:
        raise UsageError(f"{told}, which is no multiple of 16", needs="a multiple of 16")
    if not 16 <= k <= _MOST_KEPT:
        raise UsageError(told, needs=f"k in [16, {_MOST_KEPT}]")
    if input_tensor.shape[-1] < k:
        raise UsageError(
            f"{told}: the last dimension must be >= k", given=str(list(input_tensor.shape))
        )
    values, indices = torch.topk(input_tensor, k, -1)
    marked = indices.to(torch.int32).masked_fill(torch.isneginf(values), -1)
    # In a graph and on the chip the same bits stay int32, as torch_xla hands them out.
    plain = marked.device.type == "cpu" and not isinstance(marked, FakeTensor)
    return marked.view(torch.uint32) if plain else marked


def topk_large_indices_mask_invalid_slots(indices: Tensor, visible: Tensor) -> Tensor:
    """Indices as int32, minus one from each row's number of visible keys on."""
    slots = torch.arange(indices.shape[-1], device=indices.device)
    return indices.to(torch.int32).masked_fill(slots >= visible, -1)


def sparse_sdpa(
    query: Tensor, kv: Tensor, indices: Tensor, v_dim: int, scale: float | None = None,
    k_chunk_size: int = 128,
) -> Tensor:  # fmt: skip
    """Attention of each row over the keys that it names; naming one twice changes nothing."""
    if v_dim > kv.shape[-1]:
        raise UsageError(
            f"tt::sparse_sdpa: v_dim {v_dim} cannot exceed the head dimension {kv.shape[-1]}"
        )
    keys = kv.shape[-2]
    named = indices.to(torch.int64)
    # Whatever names no key lands in a column of its own, which is cut off again.
    named = named.masked_fill((named < 0) | (named >= keys), keys)
    counts = torch.zeros(*named.shape[:-1], keys + 1, dtype=torch.bool, device=query.device)
    seen = counts.scatter(-1, named, True)[..., :keys]
    return _attend(query, kv, None, v_dim, additive(seen, query.dtype), False, scale)


def dsa_kernels_available(device: Any = None) -> bool:
    """Whether the chip has kernels for sparse attention."""
    return chips.ARCHITECTURES[chips.get(resolve()["chip"]).arch].sparse_attention


_PAGED = "Tensor query, Tensor key, Tensor value, Tensor page_table"
OPS: dict[str, tuple[Any, str]] = {
    "flash_mla_prefill": (
        flash_mla_prefill,
        "(Tensor query, Tensor key, int head_dim_v, Tensor? value=None, Tensor? attn_mask=None, "
        "bool is_causal=True, float? scale=None) -> Tensor"),
    "paged_flash_mla_decode": (
        paged_flash_mla_decode,
        "(Tensor query, Tensor key, int head_dim_v, Tensor page_table, Tensor? value=None, "
        "bool is_causal=True, Tensor? attn_mask=None, Tensor? cur_pos_tensor=None, "
        "Tensor? attention_sink=None, float? scale=None) -> Tensor"),
    "chunked_scaled_dot_product_attention": (
        chunked_scaled_dot_product_attention,
        f"({_PAGED}, Tensor chunk_start_idx, float? scale=None) -> Tensor"),
    "indexer_score": (
        indexer_score,
        "(Tensor query, Tensor key, Tensor weights, int chunk_start_idx=0) -> Tensor"),
    "indexer_score_dsa": (
        indexer_score_dsa,
        "(Tensor query, Tensor key, Tensor weights, int chunk_start_idx=0) -> Tensor"),
    "topk_large_indices": (topk_large_indices, "(Tensor input_tensor, int k) -> Tensor"),
    "sparse_sdpa": (
        sparse_sdpa,
        "(Tensor query, Tensor kv, Tensor indices, int v_dim, float? scale=None, "
        "int k_chunk_size=128) -> Tensor"),
}  # fmt: skip
