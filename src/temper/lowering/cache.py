"""Decoding: state, caches written in place, attention over them, sparse matmuls of experts."""

from __future__ import annotations

import torch

from temper.graph import cache_ops
from temper.graph.fused import concat_heads_decode, split_heads_decode
from temper.graph.node import Node
from temper.lowering.builder import Builder, Value
from temper.lowering.elementwise import result
from temper.lowering.registry import lowers


def declare_state(b: Builder, path: str, value: torch.Tensor) -> Value:
    """A tensor that stays on the device; floating ones in the format that caches are kept in."""
    chosen: str = b.options["experimental_kv_cache_dtype"]
    fmt = chosen if value.is_floating_point() and chosen else None
    made = b.declare(path, value.shape, value.dtype, const=False, fmt=fmt)
    b.state[made.name] = path
    return made


def _slots(b: Builder, node: Node) -> Value:
    return b.in_layout(b.on_device(b[node]), "row_major")


@lowers(cache_ops.fill_cache)
def lower_fill(b: Builder, node: Node) -> Value:
    """A prompt's rows into the cache."""
    cache, new = b[node.args[0]], b.plain(b[node.args[1]])
    spec = b.spec(cache)
    new = b.on_device(new, spec.format)  # ttnn fills only with the cache's own format
    attrs = {"batch_index": int(node.args[2])}
    return b.emit("FillCache", [cache, new], spec.shape, cache.dtype, attrs,
                  name=cache.name, fmt=spec.format)  # fmt: skip


@lowers(cache_ops.update_cache)
def lower_update(b: Builder, node: Node) -> Value:
    """One row a user into the cache."""
    cache, new = b[node.args[0]], b.plain(b[node.args[1]])
    spec = b.spec(cache)
    return b.emit("UpdateCache", [cache, new, _slots(b, node.args[2])], spec.shape, cache.dtype,
                  name=cache.name, fmt=spec.format)  # fmt: skip


@lowers(cache_ops.sdpa_decode)
def lower_sdpa_decode(b: Builder, node: Node) -> Value:
    """Attention of a decode step."""
    shape, dtype = result(node)
    q, k, v = b.plain(b[node.args[0]]), b[node.args[1]], b[node.args[2]]
    attrs = {"scale": float(node.args[4]), "window": int(node.args[5])}
    inputs = [q, k, v, _slots(b, node.args[3])]
    return b.emit("SdpaDecode", inputs, shape, dtype, attrs, name=node.name)


@lowers(cache_ops.sparse_matmul)
def lower_sparse_matmul(b: Builder, node: Node) -> Value:
    """Products with the experts that tokens were sent to."""
    shape, dtype = result(node)
    a, w = b.plain(b[node.args[0]]), b.plain(b[node.args[1]])
    fmt = (node.meta.get("weight_format") or {}).get("format")
    if fmt:
        w = b.on_device(w, fmt)
    sparsity = b.in_layout(b.plain(b[node.args[2]]), "row_major")
    attrs = {"active": int(node.args[3])}
    return b.emit("SparseMatmul", [a, w, sparsity], shape, dtype, attrs, name=node.name)


@lowers(split_heads_decode)
def lower_split(b: Builder, node: Node) -> tuple[Value, ...]:
    """Queries, keys and values of a decode step."""
    x = b.plain(b[node.args[0]])
    results = [(v.shape, v.dtype) for v in node.meta["val"]]
    attrs = {"heads": node.args[1], "kv_heads": node.args[2]}
    return b.emit_many("CreateQkvHeadsDecode", [x], results, attrs, name=node.name)


@lowers(concat_heads_decode)
def lower_concat(b: Builder, node: Node) -> Value:
    """Heads of a decode step back into rows."""
    shape, dtype = result(node)
    return b.emit("ConcatHeadsDecode", [b.plain(b[node.args[0]])], shape, dtype, name=node.name)
