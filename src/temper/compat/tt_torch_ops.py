"""The ops of tt-xla's namespace ``torch.ops.tt`` as plain torch: what they compute, on any device.

Each is composite, so that capture sees the torch ops it is made of and the chip runs those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from temper.compat import tt_torch_latent as latent
from temper.errors import UsageError
from temper.weights.op import ensure_op_defined

Tensor = torch.Tensor
_library: list[torch.library.Library] = []


def mark_argument_attributes(tensor: Tensor, argument_type: str, name: str | None = None) -> Tensor:
    """A role and a name for tt-mlir; Temper tells roles by itself."""
    return tensor.clone()


def sharding_constraint(tensor: Tensor, sdy_sharding: str) -> Tensor:
    """How a tensor is spread over chips; here there is one."""
    return tensor.clone()


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    attention_sink: Tensor | None = None, is_causal: bool = True, scale: float | None = None,
    sliding_window_size: int | None = None,
) -> Tensor:  # fmt: skip
    """Attention over (batch, heads, rows, width); key heads may be fewer than query heads."""
    if attn_mask is not None and is_causal:
        raise UsageError("tt::scaled_dot_product_attention takes a mask or is_causal, not both")
    mask = attn_mask
    if sliding_window_size is not None:
        window = _window(query, key, sliding_window_size, is_causal)
        mask = window if mask is None else mask + window
        is_causal = False
    if attention_sink is not None:
        return _with_sink(query, key, value, mask, attention_sink, is_causal, scale)
    return F.scaled_dot_product_attention(
        query, key, value, mask, is_causal=is_causal, scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )  # fmt: skip


def _window(query: Tensor, key: Tensor, size: int, is_causal: bool) -> Tensor:
    """The last ``size`` keys up to each row; without is_causal as many in its middle."""
    rows = torch.arange(query.shape[-2], device=query.device)[:, None]
    distance = rows - torch.arange(key.shape[-2], device=query.device)
    if is_causal:
        seen = (distance >= 0) & (distance < size)
    else:
        seen = distance.abs() <= size // 2
    return latent.additive(seen, query.dtype)


def scaled_dot_product_attention_without_sink(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool,
    scale: float | None = None, sliding_window_size: int | None = None,
) -> Tensor:  # fmt: skip
    """The order of arguments before there were sinks, which tt-xla's tests keep."""
    return scaled_dot_product_attention(
        query, key, value, attn_mask, None, is_causal, scale, sliding_window_size
    )


def _with_sink(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sink: Tensor,
    is_causal: bool, scale: float | None,
) -> Tensor:  # fmt: skip
    """One more score a head takes its share of the softmax and gives nothing."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.transpose(-2, -1) * factor
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    if mask is not None:
        scores = scores + mask
    extra = sink.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1).to(scores.dtype)
    shares = torch.softmax(torch.cat((scores, extra), -1), -1)[..., :-1]
    return shares @ value


def scaled_dot_product_attention_decode(
    query: Tensor, key: Tensor, value: Tensor, cur_pos_tensor: Tensor,
    attn_mask: Tensor | None = None, attention_sink: Tensor | None = None, is_causal: bool = True,
    scale: float | None = None,
) -> Tensor:  # fmt: skip
    """One row a user against the cache, (1, users, heads, width), up to each user's position."""
    if attn_mask is not None and is_causal:
        raise UsageError("decode attention takes a mask or is_causal, not both")
    _, users, heads, width = query.shape
    rows = query.reshape(users, heads, 1, width)
    if attn_mask is not None:
        mask = attn_mask.reshape(users, -1, 1, key.shape[-2])
    else:
        mask = _until(cur_pos_tensor, key.shape[-2], query.dtype)
    if attention_sink is not None:
        made = _with_sink(rows, key, value, mask, attention_sink, False, scale)
    else:
        made = F.scaled_dot_product_attention(
            rows, key, value, mask.expand(users, heads, 1, key.shape[-2]), scale=scale,
            enable_gqa=heads != key.shape[1],
        )  # fmt: skip
    return made.reshape(1, users, heads, width)


def _until(position: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """0 up to each user's position, minus infinity behind it."""
    at = torch.arange(length, device=position.device)
    return latent.additive(at <= position.reshape(-1, 1, 1, 1), dtype)


def update_cache(
    cache: Tensor, fill_value: Tensor, cache_position: Tensor, batch_offset: int | None = None
) -> Tensor:
    """The cache with one row a head replaced at the position."""
    if batch_offset:
        raise UsageError(f"tt::update_cache: batch_offset is {batch_offset}", allowed=["0"])
    return cache.index_copy(2, cache_position.reshape(-1).long(), fill_value.to(cache.dtype))


def fill_cache(cache: Tensor, fill_value: Tensor, batch_offset: int | None = None) -> Tensor:
    """The cache with its first rows replaced."""
    if batch_offset:
        raise UsageError(f"tt::fill_cache: batch_offset is {batch_offset}", allowed=["0"])
    rest = cache[:, :, fill_value.shape[-2] :, :]
    return torch.cat((fill_value.to(cache.dtype).expand(cache.shape[0], -1, -1, -1), rest), 2)


def paged_update_cache(
    cache: Tensor, fill_value: Tensor, update_indices: Tensor, page_table: Tensor,
    share_cache: bool = False,
) -> Tensor:  # fmt: skip
    """One row a user, written to the block that its page table names."""
    block = cache.shape[-2]
    index = update_indices.long()
    pages = page_table.long().gather(1, (index // block).reshape(-1, 1)).reshape(-1)
    rows = fill_value[0, :, : cache.shape[1], :].to(cache.dtype)
    return cache.index_put((pages, torch.arange(cache.shape[1], device=cache.device)[:, None],
                            index % block), rows.transpose(0, 1))  # fmt: skip


def paged_fill_cache(
    cache: Tensor, fill_value: Tensor, page_table: Tensor, batch_idx: Tensor | None = None
) -> Tensor:
    """Rows of one user, written block by block where its page table says."""
    block, rows = cache.shape[-2], fill_value.shape[-2]
    user = page_table[0] if batch_idx is None else page_table[batch_idx.reshape(-1)[:1].long()][0]
    at = torch.arange(rows, device=cache.device)
    pages = user.long()[at // block]
    heads = torch.arange(cache.shape[1], device=cache.device)[:, None]
    return cache.index_put((pages, heads, at % block), fill_value[0].to(cache.dtype))


def paged_scaled_dot_product_attention_decode(
    query: Tensor, key: Tensor, value: Tensor, page_table: Tensor, is_causal: bool = False,
    attn_mask: Tensor | None = None, cur_pos_tensor: Tensor | None = None,
    attention_sink: Tensor | None = None, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Decode attention over caches whose blocks are put together by the page table."""
    if is_causal and cur_pos_tensor is None:
        raise UsageError("paged decode attention with is_causal needs cur_pos_tensor")
    position = cur_pos_tensor
    if position is None:
        users, pages = page_table.shape
        position = torch.full((users,), pages * key.shape[-2] - 1, device=query.device)
    return scaled_dot_product_attention_decode(
        query, latent.gathered(key, page_table), latent.gathered(value, page_table), position,
        attn_mask, attention_sink, is_causal and attn_mask is None, scale,
    )  # fmt: skip


def sparse_matmul(
    input_tensor_a: Tensor, input_tensor_b: Tensor, sparsity: Tensor, nnz: int | None = None,
    is_input_a_sparse: bool = False, is_input_b_sparse: bool = True,
) -> Tensor:  # fmt: skip
    """Products with experts (1, experts, K, N), 0 where ``sparsity`` is; ``nnz`` is a hint.

    A dense first operand (A, B, M, K) meets every expert: (A, B, 1, experts, M, N). One that is
    sparse itself, (A, experts, M, K), meets its own: (A, experts, M, N).
    """
    experts = input_tensor_b.shape[1]
    if input_tensor_a.dim() != 4 or sparsity.numel() % experts:
        raise UsageError(
            "tt::sparse_matmul takes four dimensions and a sparsity for each expert",
            given=f"{list(input_tensor_a.shape)}, sparsity {list(sparsity.shape)}",
        )
    if is_input_a_sparse:
        made = input_tensor_a @ input_tensor_b
        seen = sparsity.reshape(-1, experts, 1, 1)
    else:
        made = input_tensor_a[:, :, None, None] @ input_tensor_b[:, None]
        seen = sparsity.reshape(*input_tensor_a.shape[:2], 1, experts, 1, 1)
    return torch.where(seen != 0, made, torch.zeros_like(made))


_OPS: dict[str, tuple[Callable[..., Any], str]] = {
    "mark_argument_attributes": (
        mark_argument_attributes, "(Tensor tensor, str argument_type, str? name=None) -> Tensor"),
    "sharding_constraint": (
        sharding_constraint, "(Tensor tensor, str sdy_sharding) -> Tensor"),
    "scaled_dot_product_attention": (
        scaled_dot_product_attention,
        "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, "
        "Tensor? attention_sink=None, bool is_causal=True, float? scale=None, "
        "int? sliding_window_size=None) -> Tensor"),
    "scaled_dot_product_attention.without_sink": (
        scaled_dot_product_attention_without_sink,
        "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, "
        "float? scale=None, int? sliding_window_size=None) -> Tensor"),
    "scaled_dot_product_attention_decode": (
        scaled_dot_product_attention_decode,
        "(Tensor query, Tensor key, Tensor value, Tensor cur_pos_tensor, "
        "Tensor? attn_mask=None, Tensor? attention_sink=None, bool is_causal=True, "
        "float? scale=None) -> Tensor"),
    "update_cache": (
        update_cache,
        "(Tensor cache, Tensor fill_value, Tensor cache_position, int? batch_offset=None) "
        "-> Tensor"),
    "fill_cache": (
        fill_cache, "(Tensor cache, Tensor fill_value, int? batch_offset=None) -> Tensor"),
    "paged_update_cache": (
        paged_update_cache,
        "(Tensor cache, Tensor fill_value, Tensor update_indices, Tensor page_table, "
        "bool share_cache=False) -> Tensor"),
    "paged_fill_cache": (
        paged_fill_cache,
        "(Tensor cache, Tensor fill_value, Tensor page_table, Tensor? batch_idx=None) -> Tensor"),
    "sparse_matmul": (
        sparse_matmul,
        "(Tensor input_tensor_a, Tensor input_tensor_b, Tensor sparsity, int? nnz=None, "
        "bool is_input_a_sparse=False, bool is_input_b_sparse=True) -> Tensor"),
    "paged_scaled_dot_product_attention_decode": (
        paged_scaled_dot_product_attention_decode,
        "(Tensor query, Tensor key, Tensor value, Tensor page_table, bool is_causal=False, "
        "Tensor? attn_mask=None, Tensor? cur_pos_tensor=None, Tensor? attention_sink=None, "
        "float? scale=None) -> Tensor"),
    **latent.OPS,
}  # fmt: skip


def define_ops() -> None:
    """Define them once in this process."""
    ensure_op_defined()
    if _library:
        return
    library = torch.library.Library("tt", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name, (function, schema) in _OPS.items():
        library.define(name + schema)  # type: ignore[no-untyped-call]
        library.impl(name, function, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    _library.append(library)


def composite_gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """tt-xla marks these for its compiler; here they are what they compute."""
    return F.gelu(input, approximate=approximate)


def composite_rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Root-mean-square norm."""
    return F.rms_norm(input, normalized_shape, weight, eps)


def composite_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Layer norm."""
    shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    return F.layer_norm(input, shape, weight, bias, eps)


def composite_group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Group norm."""
    return F.group_norm(input, num_groups, weight, bias, eps)


composite_scaled_dot_product_attention = F.scaled_dot_product_attention
composite_argmax = torch.argmax
composite_topk = torch.topk


def composite_topk_values(input: Tensor, k: int, *args: Any, **kwargs: Any) -> Tensor:
    """The values of the largest."""
    return torch.topk(input, k, *args, **kwargs).values


def composite_topk_indices(input: Tensor, k: int, *args: Any, **kwargs: Any) -> Tensor:
    """Where the largest are."""
    return torch.topk(input, k, *args, **kwargs).indices


define_ops()
