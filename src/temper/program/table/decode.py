"""Records of decoding: caches that are written in place, attention over them, heads, experts.

A decode step keeps its users in the rows of one tile: (1, B, D), and per head (1, B, heads, d).
Caches are (B, kv heads, S, d). ``slots`` (B) tell each user's position; -1 leaves a user idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from temper.chips import Chip
from temper.program.compute_config import compute_attrs
from temper.program.op import Op, OpKind, Specs, register
from temper.program.table.shared import COMPUTE, entry_bytes, matrix, through, width_tiles
from temper.program.tensor import TILE, ceil_div

# The longest block of keys that decode attention takes by itself (EXPERT 4.5).
_KEY_BLOCK = 512


def _four(*specs: Any) -> bool:
    return all(len(spec.shape) == 4 for spec in specs)


def _fill_shapes(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    if len(inputs) < 2:
        return
    cache, new = inputs[:2]
    if not _four(cache, new):
        yield "cache and new values have four dimensions each"
        return
    users, heads, slots, depth = cache.shape
    if (new.shape[0], new.shape[1], new.shape[3]) != (1, heads, depth) or new.shape[2] > slots:
        yield f"{list(new.shape)} does not fill one user of {list(cache.shape)}"
    if not 0 <= op.attr("batch_index") < users:
        yield f"there is no user {op.attr('batch_index')} in {list(cache.shape)}"


def _update_shapes(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    if len(inputs) < 3:
        return
    cache, new, slots = inputs[:3]
    if not _four(cache, new):
        yield "cache and new values have four dimensions each"
        return
    users, heads, _, depth = cache.shape
    if new.shape != (1, users, heads, depth):
        yield f"new values are {list(new.shape)}, not {[1, users, heads, depth]}"
    if slots.shape != (users,):
        yield f"slots are {list(slots.shape)} for {users} users"


def _decode_shapes(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    if len(inputs) < 4:
        return
    q, k, v, slots = inputs[:4]
    if not _four(q, k, v):
        yield "q, k and v have four dimensions each"
        return
    users, heads, _, depth = k.shape
    if q.shape[:2] != (1, users) or q.shape[3] != depth or q.shape[2] % heads:
        yield f"q is {list(q.shape)}, the cache {list(k.shape)}"
    if v.shape[:3] != k.shape[:3]:
        yield f"keys are {list(k.shape)}, values {list(v.shape)}"
    if slots.shape != (users,):
        yield f"slots are {list(slots.shape)} for {users} users"


def _decode_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """A block of keys and of values twice, the heads of a user, scores and running sums."""
    q, k, v = inputs[:3]
    rows = ceil_div(q.matrix[1], TILE)
    block = ceil_div(min(_KEY_BLOCK, k.matrix[1]), TILE)
    streamed = 2 * block * (width_tiles(k) * entry_bytes(k) + width_tiles(v) * entry_bytes(v))
    held = rows * (3 * width_tiles(q) + 2 * block + 8) * entry_bytes(q)
    return streamed + held


def _decode_products(op: Op, inputs: Specs, outputs: Specs, padded: bool) -> float:
    """Of a full cache: how much of it is read depends on the slots."""
    if len(inputs) < 2:
        return 0.0
    users, heads, width = matrix(inputs[0], padded)
    return float(2 * users * heads * matrix(inputs[1], padded)[1] * width)


def _decode_compute(inputs: Specs, outputs: Specs, arch: str, k: int, norm: str) -> dict[str, Any]:
    return compute_attrs("HiFi2")


def _split(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    return sum(2 * width_tiles(spec) * entry_bytes(spec) for spec in outputs)


def _split_shapes(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    if not inputs or not inputs[0].shape or not outputs[0].shape:
        return
    heads = op.attr("heads") + 2 * op.attr("kv_heads")
    if inputs[0].shape[-1] != heads * outputs[0].shape[-1]:
        yield f"{inputs[0].shape[-1]} columns are not {heads} heads of {outputs[0].shape[-1]}"


def _sparse_shapes(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    if len(inputs) < 3:
        return
    a, b, sparsity = inputs[:3]
    if len(b.shape) != 3 or len(a.shape) not in (2, 3) or a.shape[-1] != b.shape[1]:
        yield f"{list(a.shape)} cannot be multiplied with the experts {list(b.shape)}"
    elif outputs[0].shape != (b.shape[0], a.shape[-2], b.shape[2]):
        yield f"the result is {list(outputs[0].shape)}"
    if len(sparsity.shape) != 1 or sparsity.shape[0] != b.shape[0]:
        yield f"sparsity is {list(sparsity.shape)} for {b.shape[0]} experts"


def _sparse_products(op: Op, inputs: Specs, outputs: Specs, padded: bool) -> float:
    if not inputs or not outputs:
        return 0.0
    _, rows, inner = matrix(inputs[0], padded)
    experts, _, columns = matrix(outputs[0], padded)
    return float((op.attr("active") or experts) * rows * inner * columns)


def _sparse_compute(inputs: Specs, outputs: Specs, arch: str, k: int, norm: str) -> dict[str, Any]:
    return compute_attrs("HiFi2", packer_l1_acc=True)


register(
    # One user's first rows of the cache; the new values have the cache's format.
    OpKind(
        "FillCache",
        "kv_cache",
        "UpdateKVCacheOperation",
        ("cache", "new"),
        {"batch_index": 0},
        in_place=True,
        shapes=_fill_shapes,
        buffers=through,
    ),
    # Row slots[u] of user u.
    OpKind(
        "UpdateCache",
        "kv_cache",
        "PagedUpdateCacheDeviceOperation",
        ("cache", "new", "slots"),
        in_place=True,
        shapes=_update_shapes,
    ),
    # One query a user over its keys 0 to slots[u], or the last ``window`` of them. ``context`` is
    # the position that times are given for; 0 takes the whole cache.
    OpKind(
        "SdpaDecode",
        "sdpa_decode",
        "SdpaDecodeDeviceOperation",
        ("q", "k", "v", "slots"),
        {"scale": None, "window": 0, "context": 0, "config": None, **COMPUTE},
        matrix=True,
        shapes=_decode_shapes,
        buffers=_decode_buffers,
        products=_decode_products,
        compute=_decode_compute,
    ),
    # (1, B, (h + 2 kv) d) -> q (1, B, h, d), k and v (1, B, kv, d)
    OpKind(
        "CreateQkvHeadsDecode",
        "heads",
        "NLPCreateQKVHeadsDecodeDeviceOperation",
        ("x",),
        {"heads": 1, "kv_heads": 1},
        results=(3, 3),
        shapes=_split_shapes,
        buffers=_split,
    ),
    # (1, B, h, d) -> (1, B, h d)
    OpKind("ConcatHeadsDecode", "heads", "NLPConcatHeadsDecodeDeviceOperation", ("x",),
           buffers=through),
    # a (T, K) or (E, T, K) times the experts b (E, K, N) whose sparsity (E) is not zero; zeros for
    # the others. ``active`` says how many to expect, for times; 0 is all.
    OpKind(
        "SparseMatmul",
        "sparse_matmul",
        "SparseMatmulDeviceOperation",
        ("a", "b", "sparsity"),
        {"active": 0, "config": None, **COMPUTE},
        matrix=True,
        shapes=_sparse_shapes,
        products=_sparse_products,
        compute=_sparse_compute,
    ),
)  # fmt: skip
