"""Slow references of decoding: one user, one head and one row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from temper.formats import quantize
from temper.program import Op, TensorSpec
from temper.targets.virtual.reference_product import product, softmax
from temper.targets.virtual.reference_table import Rules, reference

Array = NDArray[Any]


@reference("FillCache")
def _fill(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    cache, new = inputs
    cache = cache.copy()
    cache[op.attr("batch_index"), :, : new.shape[2]] = new[0]
    return [cache]


@reference("UpdateCache")
def _update(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    cache, new, slots = inputs
    cache = cache.copy()
    for user, slot in enumerate(slots.reshape(-1)):
        if slot >= 0:
            cache[user, :, int(slot)] = new[0, user]
    return [cache]


@reference("SdpaDecode")
def _sdpa_decode(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    q, k, v, slots = inputs
    out = np.zeros(specs[0].shape)
    scale = op.attr("scale") if op.attr("scale") is not None else q.shape[-1] ** -0.5
    shared = q.shape[2] // k.shape[1]
    for user, slot in enumerate(slots.reshape(-1).astype(int)):
        if slot < 0:
            continue
        first = max(0, slot + 1 - op.attr("window")) if op.attr("window") else 0
        for head in range(q.shape[2]):
            keys = k[user, head // shared, first : slot + 1]
            values = v[user, head // shared, first : slot + 1]
            row = np.ascontiguousarray(q[0, user, head : head + 1])
            scores = product(row, np.ascontiguousarray(keys.T), op, rules) * scale
            shares = np.asarray(quantize(softmax(scores, -1).astype(np.float32), "bfloat16"))
            made = product(shares.astype(np.float64), np.ascontiguousarray(values), op, rules)
            out[0, user, head] = made[0]
    return [out]


@reference("CreateQkvHeadsDecode")
def _create(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    depth = specs[0].shape[-1]
    heads = inputs[0].reshape(1, inputs[0].shape[-2], -1, depth)
    ends = np.cumsum([op.attr("heads"), op.attr("kv_heads")])
    return list(np.split(heads, ends, axis=2))


@reference("ConcatHeadsDecode")
def _concat(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    return [inputs[0].reshape(specs[0].shape)]
