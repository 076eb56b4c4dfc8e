"""Ops of decoding that torch lacks: ``torch.ops.temper.fill_cache``, ``update_cache``,
``sdpa_decode`` and ``sparse_matmul``.

Each is one node of a captured graph and one op of the chip. They are functional, so that capture
sees what is written as a value; in eager torch they compute what the chip would, in the dtypes
given. The namespace is ours: ``torch.ops.tt`` has tt-xla's ops, with other signatures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_LIBRARY = torch.library.Library("temper", "FRAGMENT")  # type: ignore[no-untyped-call]


def _define(schema: str, function: Callable[..., Any], fake: Callable[..., Any]) -> None:
    name = "temper::" + schema.partition("(")[0]
    _LIBRARY.define(schema)  # type: ignore[no-untyped-call]
    torch.library.impl(name, "CompositeExplicitAutograd", lib=_LIBRARY)(function)
    torch.library.register_fake(name, fake, lib=_LIBRARY)


def _fill_cache(cache: torch.Tensor, new: torch.Tensor, batch_index: int) -> torch.Tensor:
    made = cache.clone()
    made[batch_index, :, : new.shape[2]] = new[0].to(cache.dtype)
    return made


def _update_cache(cache: torch.Tensor, new: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    made = cache.clone()
    users = torch.arange(cache.shape[0])
    busy = slots >= 0
    made[users[busy], :, slots[busy].long()] = new[0][busy].to(cache.dtype)
    return made


def _sdpa_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    slots: torch.Tensor,
    scale: float,
    window: int,
) -> torch.Tensor:
    places = torch.arange(k.shape[2])
    open_ = places <= slots[:, None]
    if window:
        open_ &= places > slots[:, None] - window
    made = torch.nn.functional.scaled_dot_product_attention(
        q[0][:, :, None], k, v, open_[:, None, None], scale=scale, enable_gqa=True
    )
    return made[:, :, 0].nan_to_num(0.0)[None]


def _sparse_matmul(
    a: torch.Tensor, b: torch.Tensor, sparsity: torch.Tensor, active: int
) -> torch.Tensor:
    made = torch.matmul(a, b)
    return made * (sparsity != 0).to(made.dtype)[:, None, None]


def _like_cache(cache: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(cache)


def _like_query(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: object) -> torch.Tensor:
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


def _like_experts(a: torch.Tensor, b: torch.Tensor, *_: object) -> torch.Tensor:
    return a.new_empty((b.shape[0], a.shape[-2], b.shape[-1]))


for _schema, _function, _fake in (
    ("fill_cache(Tensor cache, Tensor new, int batch_index)", _fill_cache, _like_cache),
    ("update_cache(Tensor cache, Tensor new, Tensor slots)", _update_cache, _like_cache),
    (
        "sdpa_decode(Tensor q, Tensor k, Tensor v, Tensor slots, float scale, int window)",
        _sdpa_decode,
        _like_query,
    ),
    (
        "sparse_matmul(Tensor a, Tensor b, Tensor sparsity, int active)",
        _sparse_matmul,
        _like_experts,
    ),
):
    _define(_schema + " -> Tensor", _function, _fake)

# (B, kv, S, d), new (1, kv, S', d), which user: the first S' rows written.
fill_cache = torch.ops.temper.fill_cache.default
# (B, kv, S, d), new (1, B, kv, d), slots (B): row slots[u] of user u written; -1 writes nothing.
update_cache = torch.ops.temper.update_cache.default
# q (1, B, h, d) over k and v (B, kv, S, d) up to slots[u], or the last ``window`` of those.
sdpa_decode = torch.ops.temper.sdpa_decode.default
# a (T, K) or (E, T, K) times b (E, K, N), where sparsity (E) is not zero; about ``active`` are.
sparse_matmul = torch.ops.temper.sparse_matmul.default
