"""Reference of the ops that move data, plainly in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temper.program import Op, TensorSpec
from temper.targets.virtual.reference_table import Rules, reference

Array = NDArray[Any]
Arrays = list[Array]
Specs = list[TensorSpec]


@reference(
    "Halo", "Move", "FillPad", "ScaleMask", "Typecast", "Tilize", "Untilize",
    "InterleavedToSharded", "ShardedToInterleaved", "Reshard", "Copy", "Reshape",
)  # fmt: skip
def _same(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    return [inputs[0].reshape(specs[0].shape)]


@reference("Permute")
def _permute(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    return [inputs[0].transpose(op.attr("dims"))]


@reference("Transpose")
def _transpose(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    return [inputs[0].swapaxes(*op.attr("dims"))]


@reference("Slice")
def _slice(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    begins, ends = op.attr("begins"), op.attr("ends")
    steps = op.attr("steps") or [1] * len(begins)
    return [inputs[0][tuple(slice(*b) for b in zip(begins, ends, steps, strict=True))]]


@reference("Concat")
def _concat(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    return [np.concatenate(inputs, op.attr("dim"))]


@reference("Pad")
def _pad(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    return [np.pad(inputs[0], op.attr("pads"), constant_values=op.attr("value"))]


@reference("FoldImage")
def _fold_image(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    first, end = op.attr("images") or (0, inputs[0].shape[0])
    (down, across), channels = op.attr("step"), op.attr("channels")
    top, bottom, left, right = op.attr("padding")
    x = inputs[0][first:end]
    more = ((0, 0), (0, channels - x.shape[1]), (top, bottom), (left, right))
    padded = np.pad(x, more)
    rows, columns = padded.shape[2] // down, padded.shape[3] // across
    blocks = padded.reshape(-1, channels, rows, down, columns, across)
    return [blocks.transpose(0, 2, 4, 3, 5, 1).reshape(specs[0].shape)]


@reference("Repeat")
def _repeat(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    return [np.tile(inputs[0], op.attr("repeats"))]


@reference("CreateQkvHeads")
def _create_heads(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    heads, kv_heads = op.attr("heads"), op.attr("kv_heads")
    batch, length = inputs[0].shape[-3:-1]
    split = inputs[0].reshape(batch, length, heads + 2 * kv_heads, -1).transpose(0, 2, 1, 3)
    q, k, v = np.split(split, [heads, heads + kv_heads], axis=1)
    return [q, k.swapaxes(-1, -2) if op.attr("transpose_k") else k, v]


@reference("ConcatHeads")
def _concat_heads(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    return [inputs[0].transpose(0, 2, 1, 3)]


@reference("Embeddings")
def _embeddings(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    return [inputs[1].reshape(-1, inputs[1].shape[-1])[inputs[0].astype(np.int64)]]


@reference("Gather")
def _gather(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    x, index, dim = inputs[0], inputs[1].astype(np.int64), op.attr("dim") % inputs[0].ndim
    places = list(np.indices(index.shape))
    places[dim] = index
    return [x[tuple(places)]]


@reference("Scatter")
def _scatter(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    out, index, src = inputs[0].copy(), inputs[1].astype(np.int64), inputs[2]
    joins: dict[str | None, Callable[[Any, Any], Any]] = {
        None: lambda old, new: new,
        "add": lambda old, new: old + new,
        "multiply": lambda old, new: old * new,
        "amax": max,
        "amin": min,
    }
    join = joins[op.attr("reduce")]
    for place in np.ndindex(*index.shape):
        target = list(place)
        target[op.attr("dim")] = int(index[place])
        out[tuple(target)] = join(out[tuple(target)], src[place])
    return [out]


@reference("ArgMax")
def _argmax(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    function = np.argmax if op.attr("largest") else np.argmin
    return [np.asarray(function(inputs[0], axis=op.attr("dim")))]


@reference("TopK")
def _topk(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    x, dim = inputs[0], op.attr("dim")
    order = np.argsort(-x if op.attr("largest") else x, axis=dim, kind="stable")
    order = np.take(order, range(op.attr("k")), axis=dim)
    return [np.take_along_axis(x, order, dim), order]


@reference("Sort")
def _sort(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    x, dim = inputs[0], op.attr("dim")
    order = np.argsort(-x if op.attr("descending") else x, axis=dim, kind="stable")
    return [np.take_along_axis(x, order, dim), order]


@reference("CumSum")
def _cumsum(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    return [np.cumsum(inputs[0], axis=op.attr("dim"))]


@reference("Full")
def _full(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    return [np.full(specs[0].shape, op.attr("value"), np.float64)]


@reference("Arange")
def _arange(op: Op, inputs: Arrays, specs: Specs, rules: Rules) -> Arrays:
    return [np.arange(op.attr("start"), op.attr("end"), op.attr("step"), dtype=np.float64)]
