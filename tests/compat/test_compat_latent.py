"""Latent, chunked and sparse attention of ``torch.ops.tt`` against their definitions, in loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from temper.compat import tt_torch_latent as latent
from temper.compat.tt_torch_ops import define_ops
from temper.errors import UsageError
from temper.frontdoor.compiled import compile as temper_compile

define_ops()
tt = torch.ops.tt


def row_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> torch.Tensor:
    """One row over some keys, by the formula."""
    return torch.softmax(keys.double() @ query.double() * scale, 0) @ values.double()


def test_sinkless_and_sinkful_orders_of_arguments_mean_the_same() -> None:
    q, k, v = (torch.randn(1, 2, 32, 8) for _ in range(3))
    old = tt.scaled_dot_product_attention(q, k, v, None, True, 0.5)
    new = tt.scaled_dot_product_attention(q, k, v, None, None, True, 0.5)
    assert torch.equal(old, new)


def test_a_window_and_a_mask_hold_together() -> None:
    """A mask used to be dropped where a window was given."""
    q, k, v = (torch.randn(1, 1, 8, 4) for _ in range(3))
    mask = torch.zeros(1, 1, 8, 8)
    mask[..., 3] = -math.inf
    made = tt.scaled_dot_product_attention(q, k, v, mask, False, 1.0, 4)
    for row in range(8):
        seen = [at for at in range(8) if abs(row - at) <= 2 and at != 3]
        want = row_attention(q[0, 0, row], k[0, 0, seen], v[0, 0, seen], 1.0)
        torch.testing.assert_close(made[0, 0, row].double(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has_value", [False, True])
def test_latent_keys_hold_the_values_in_their_first_columns(has_value: bool) -> None:
    q, k = torch.randn(1, 4, 6, 12), torch.randn(1, 1, 6, 12)
    v = torch.randn(1, 1, 6, 8) if has_value else None
    made = tt.flash_mla_prefill(q, k, 8, v, None, True, 0.3)
    values = k[..., :8] if v is None else v
    for head in range(4):
        for row in range(6):
            want = row_attention(q[0, head, row], k[0, 0, : row + 1], values[0, 0, : row + 1], 0.3)
            torch.testing.assert_close(made[0, head, row].double(), want, rtol=1e-4, atol=1e-5)


def test_paged_latents_are_read_through_the_page_table_up_to_each_position() -> None:
    pages = torch.tensor([[3, 0], [1, 2]])
    cache, query = torch.randn(4, 1, 4, 12), torch.randn(1, 2, 3, 12)
    made = tt.paged_flash_mla_decode(
        query, cache, 8, pages, None, True, None, torch.tensor([5, 2]), None, 0.5
    )
    for user, last in ((0, 5), (1, 2)):
        rows = torch.cat([cache[page, 0] for page in pages[user]])[: last + 1]
        for head in range(3):
            want = row_attention(query[0, user, head], rows, rows[:, :8], 0.5)
            torch.testing.assert_close(made[0, user, head].double(), want, rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError, match="is_causal=True alone"):
        tt.paged_flash_mla_decode(query, cache, 8, pages, None, False)


def test_a_later_chunk_sees_everything_before_it() -> None:
    pages = torch.tensor([[1, 0]])
    key, value, query = torch.randn(2, 1, 4, 8), torch.randn(2, 1, 4, 8), torch.randn(1, 2, 3, 8)
    made = tt.chunked_scaled_dot_product_attention(query, key, value, pages, torch.tensor([4]))
    keys, values = (torch.cat([t[1, 0], t[0, 0]]) for t in (key, value))
    for head in range(2):
        for row in range(3):
            want = row_attention(query[0, head, row], keys[: 5 + row], values[: 5 + row], 8**-0.5)
            torch.testing.assert_close(made[0, head, row].double(), want, rtol=1e-4, atol=1e-5)


def score(rows: int, keys: int, start: int = 0) -> torch.Tensor:
    given = [torch.randn(1, 2, rows, 8), torch.randn(1, 1, keys, 8), torch.randn(1, 2, rows, 1)]
    found: torch.Tensor = tt.indexer_score_dsa(*(t.bfloat16() for t in given), start)
    return found


def test_the_indexer_scores_what_a_row_sees_and_nothing_behind_it() -> None:
    q, k, w = torch.randn(1, 2, 3, 8), torch.randn(1, 1, 6, 8), torch.randn(1, 2, 3, 1)
    made = tt.indexer_score(q, k, w, 2)
    for row in range(3):
        for at in range(6):
            if at > row + 2:
                assert made[0, 0, row, at] == -math.inf
                continue
            products = [max(0.0, float(q[0, h, row] @ k[0, 0, at])) for h in range(2)]
            want = sum(p * float(w[0, h, row, 0]) for h, p in enumerate(products))
            assert float(made[0, 0, row, at]) == pytest.approx(want, rel=1e-4, abs=1e-5)
    with pytest.raises(UsageError, match="bfloat16"):
        tt.indexer_score_dsa(q, k, w, 0)


def test_rows_with_few_keys_name_the_sentinel_in_their_tail() -> None:
    found = tt.topk_large_indices(score(20, 32), 16)
    assert found.dtype is torch.uint32
    signed = found.to(torch.int32)
    assert [(row < 0).sum().item() for row in signed[0, 0]] == [
        max(0, 16 - (row + 1)) for row in range(20)
    ]
    assert int(found[0, 0, 0, -1]) == latent.TOPK_LARGE_INDICES_SENTINEL == 2**32 - 1
    visible = torch.arange(1, 21).reshape(1, 1, 20, 1)
    mended = latent.topk_large_indices_mask_invalid_slots(found, visible)
    assert torch.equal(mended < 0, signed < 0)


@pytest.mark.parametrize(
    ("k", "told"),
    [(0, "positive"), (8, r"\[16, 2048\]"), (24, "multiple of 16"), (4096, "2048"), (32, ">= k")],
)
def test_a_k_that_the_kernel_does_not_take_is_refused(k: int, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        tt.topk_large_indices(torch.randn(1, 16 if k == 32 else 4096), k)


def test_sparse_attention_weighs_each_named_key_once() -> None:
    query, kv = torch.randn(1, 2, 3, 12), torch.randn(1, 1, 6, 12)
    named = torch.tensor([[0, 0, 2**32 - 1], [1, 5, 5], [3, 2, 1]]).reshape(1, 1, 3, 3)
    made = tt.sparse_sdpa(query, kv, named.to(torch.uint32), 8)
    for row, keys in enumerate(([0], [1, 5], [1, 2, 3])):
        for head in range(2):
            want = row_attention(query[0, head, row], kv[0, 0, keys], kv[0, 0, keys, :8], 12**-0.5)
            torch.testing.assert_close(made[0, head, row].double(), want, rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError, match="cannot exceed"):
        tt.sparse_sdpa(query, kv, named.to(torch.uint32), 13)


def test_the_whole_chain_on_the_chip_is_dense_attention_where_every_key_is_kept() -> None:
    class Chain(torch.nn.Module):
        def forward(self, scores: torch.Tensor, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
            named = tt.topk_large_indices(scores, 32)
            found: torch.Tensor = tt.sparse_sdpa(q, kv, named, 32)
            return found

    q, kv = torch.randn(1, 2, 32, 64), torch.randn(1, 1, 32, 64)
    with torch.no_grad():
        made = temper_compile(Chain().eval())(score(32, 32), q, kv)
    want = F.scaled_dot_product_attention(q, kv, kv[..., :32], is_causal=True, enable_gqa=True)
    assert torch.corrcoef(torch.stack((made.flatten(), want.flatten())))[0, 1] > 0.999
