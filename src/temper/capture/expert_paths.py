"""Products of rows with their experts' matrices, as the chip computes them.

Mixtures of experts sort tokens by expert and multiply each group with its expert's matrix. The
chip has a matmul over all experts that skips those nobody chose; every row then takes the product
of its own expert.
"""

from __future__ import annotations

from typing import Any

import torch

from temper.graph import cache_ops

Tensor = torch.Tensor


def grouped_mm(
    rows: Tensor,
    experts: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """rows (T, K) times experts (E, K, N); group e ends before row offs[e]."""
    if rows.dim() != 2 or experts.dim() != 3 or offs is None or bias is not None:
        return NotImplemented
    count = experts.shape[0]
    places = torch.arange(rows.shape[0])
    ended = (places >= offs[:, None]).to(rows.dtype)  # (E, T): expert e's group is over
    before = torch.cat([torch.ones_like(ended[:1]), ended[:-1]])
    mine = before - ended
    made = cache_ops.sparse_matmul(rows, experts, mine.amax(dim=1), min(count, int(rows.shape[0])))
    total = (made * mine[:, :, None]).sum(dim=0)
    return total if out_dtype is None else total.to(out_dtype)


def histogram(values: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """How many values lie in each of ``bins`` equal parts of [min, max]."""
    if min == max or bins > _FEW:
        return NotImplemented  # the range depends on the values, or the table would be large
    flat = values.reshape(-1).float()
    place = ((flat - min) * (bins / (max - min))).floor()
    place = torch.where(flat == max, torch.full_like(place, bins - 1), place)
    return (place[:, None] == torch.arange(bins)).to(values.dtype).sum(dim=0)


# Bins that are counted by comparing every value with every bin.
_FEW = 1024

EXPERT_PATHS: dict[Any, Any] = {
    torch.ops.aten._grouped_mm.default: grouped_mm,
    torch.ops.aten.histc.default: histogram,
}
