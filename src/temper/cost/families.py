"""Which physics times which family of operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from temper.cost import data_movement, elementwise, matmul
from temper.cost.records import Physics
from temper.cost.work import Work
from temper.program.ops import KINDS

_MOVES = [
    "slice", "tilize", "untilize", "sharded_to_interleaved", "interleaved_to_sharded", "rope",
    "heads", "reshape", "kv_cache", "transpose", "reshard", "concat", "move", "halo", "fill_pad",
    "permute", "embedding", "repeat", "pad", "other", "gather_scatter", "conv2d", "sdpa",
    "sdpa_decode", "rmsnorm", "layernorm", "reduce", "softmax", "groupnorm", "norm_partial",
    "sparse_matmul", "topk", "cumsum", "pool", "upsample", "grid_sample",
]  # fmt: skip

PHYSICS: Mapping[str, Callable[[Work], Physics]] = {
    **{name: data_movement.simple(name) for name in _MOVES},
    "matmul": matmul.physics,
    "unary": elementwise.unary,
    "binary": elementwise.binary,
    "ternary": elementwise.ternary,
    "typecast": elementwise.typecast,
    "copy": elementwise.copy,
}


# Exponent that joins overlapped terms: 1 adds them, a large one takes the longest.
POWER = {"other": 2.0}


def family_of(work: Work) -> str:
    if "family" in work.op.attrs:
        return str(work.op.attrs["family"])
    kind = KINDS.get(work.op.kind)
    return kind.family if kind else "other"


def physics(work: Work) -> Physics:
    return PHYSICS.get(family_of(work), PHYSICS["other"])(work)
