"""Which physics times which family of operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from temper.cost import (
    attention,
    conv,
    data_movement,
    elementwise,
    layout,
    matmul,
    norm,
    reduce,
)
from temper.cost.records import Physics
from temper.cost.work import Work
from temper.program.table import KINDS

PHYSICS: Mapping[str, Callable[[Work], Physics]] = {
    "matmul": matmul.physics,
    "sparse_matmul": matmul.sparse,
    "conv2d": conv.conv2d,
    "halo": conv.halo,
    "pool": conv.pool,
    "upsample": conv.upsample,
    "grid_sample": conv.grid_sample,
    "unary": elementwise.unary,
    "binary": elementwise.binary,
    "ternary": elementwise.ternary,
    "typecast": elementwise.typecast,
    "copy": elementwise.copy,
    "full": data_movement.generic,
    "slice": data_movement.slice_,
    "sharded_to_interleaved": data_movement.to_interleaved,
    "interleaved_to_sharded": data_movement.to_sharded,
    "reshard": data_movement.reshard,
    "move": data_movement.move,
    "concat": data_movement.concat,
    "pad": data_movement.pad,
    "repeat": data_movement.repeat,
    "embedding": layout.embedding,
    "gather_scatter": data_movement.gather,
    "other": data_movement.generic,
    "tilize": layout.tilize,
    "untilize": layout.untilize,
    "reshape": layout.reshape,
    "transpose": layout.transpose,
    "permute": layout.permute,
    "fill_pad": layout.fill_pad,
    "conv_prepare": layout.permute,
    "sdpa": attention.sdpa,
    "sdpa_decode": attention.sdpa_decode,
    "rope": attention.rope,
    "heads": attention.heads,
    "kv_cache": attention.kv_cache,
    "rmsnorm": norm.rms,
    "layernorm": norm.layer,
    "norm_partial": norm.partial,
    "groupnorm": norm.group,
    "batchnorm": norm.batch,
    "reduce": reduce.reduce,
    "softmax": reduce.softmax,
    "topk": reduce.topk,
    "argmax": reduce.topk,
    "sort": reduce.topk,
    "cumsum": reduce.cumsum,
}

# Exponent that joins overlapped terms: 1 adds them, a large one takes the longest.
POWER = {
    "matmul": 4.0, "heads": 3.0, "interleaved_to_sharded": 3.0, "conv2d": 1.5, "unary": 1.5,
    "reshape": 1.5, "transpose": 1.5, "rmsnorm": 1.5, "reduce": 1.5, "sdpa": 1.5, "slice": 1.2,
    "tilize": 1.2, "typecast": 1.2, "embedding": 1.2, "binary": 2.5,
    "fill_pad": 3.0, "repeat": 3.0, "rope": 1.2, "move": 1.2, "other": 1.2,
}  # fmt: skip
DEFAULT_POWER = 2.0


def family_of(work: Work) -> str:
    """The family of kernels that runs an op."""
    if "family" in work.op.attrs:
        return str(work.op.attrs["family"])
    kind = KINDS.get(work.op.kind)
    return kind.family if kind else "other"


def physics(work: Work) -> Physics:
    """The op in physical terms; a measured row that its family cannot read goes by its bytes."""
    family = PHYSICS.get(family_of(work), data_movement.generic)
    if not work.context.measured:
        return family(work)
    try:
        return family(work)
    except (ArithmeticError, IndexError, KeyError, TypeError, ValueError):
        # Odd rows (a matmul of one tensor, a pool without a window) still get a wide estimate.
        return data_movement.generic(work)
