"""Duplicate and inverse data movement: reshapes, permutes, layout changes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from temper.options import Options
from temper.passes.draft import Draft
from temper.program import Op

_INVERSE = {"Tilize": "Untilize", "Untilize": "Tilize"}
_MOVES = ("Reshape", "Permute", "Transpose")
# Movements in a row that are looked through.
_CHAIN = 8

_Axis = list[tuple[int, int]]  # factors of one dimension: (size, step in the source's order)


def remove_movement(draft: Draft, options: Options) -> int:
    """Until nothing changes: merge reshapes, cancel inverses, share equal movements."""
    hits = 0
    while True:
        found = _sweep(draft)
        hits += found
        if not found:
            return hits


def _sweep(draft: Draft) -> int:
    hits = 0
    seen: dict[Any, str] = {}
    for index, op in enumerate(draft.ops):
        if op is None or op.kind not in ("Reshape", "Permute", "Transpose", "Tilize", "Untilize"):
            continue
        source, out = op.inputs[0], op.outputs[0]
        same = _same_value(draft, op)
        if same is None:
            key = (op.kind, source, repr(sorted(op.attrs.items())), draft.values[out])
            first = seen.setdefault(key, out)
            same = None if first == out else first
        if same is not None:
            draft.rename(out, same)
            draft.remove(index)
            hits += 1
        elif op.kind == "Reshape" and _merge_reshape(draft, index, op):
            hits += 1
        elif op.kind in _MOVES:
            hits += _undo(draft, index, op)
    return hits


def _same_value(draft: Draft, op: Op) -> str | None:
    """An existing value that equals this op's result."""
    source, out = op.inputs[0], op.outputs[0]
    if draft.values[source] == draft.values[out] and op.kind == "Reshape":
        return source
    before = draft.maker(source)
    if before is None:
        return None
    origin = before.inputs[0] if before.inputs else ""
    if not origin or draft.values[origin] != draft.values[out]:
        return None
    if op.kind == before.kind == "Reshape":
        return origin
    if _INVERSE.get(op.kind) == before.kind:
        return origin
    if op.kind in ("Permute", "Transpose") and before.kind in ("Permute", "Transpose"):
        rank = len(draft.values[origin].shape)
        first, second = _dims(before, rank), _dims(op, rank)
        if [first[d] for d in second] == list(range(rank)):
            return origin
    return None


def _dims(op: Op, rank: int) -> list[int]:
    if op.kind == "Permute":
        return [int(d) % rank for d in op.attr("dims")]
    dims = list(range(rank))
    a, b = (int(d) % rank for d in op.attr("dims"))
    dims[a], dims[b] = dims[b], dims[a]
    return dims


def _undo(draft: Draft, index: int, op: Op) -> int:
    """A chain of movements that ends in the order of an earlier value is a reshape of that value.

    So (N, H*W, C) brought to (N, C, H, W) for a convolution and back costs nothing.
    """
    out = draft.values[op.outputs[0]]
    chain, name, found = [op], op.inputs[0], ""
    while len(chain) < _CHAIN:
        before = draft.maker(name)
        if before is None or before.kind not in _MOVES:
            break
        chain.append(before)
        name = before.inputs[0]
        spec = draft.values[name]
        if (spec.format, spec.layout) == (out.format, out.layout) and _same_order(draft, chain):
            found = name
    if not found or all(step.kind == "Reshape" for step in chain):
        return 0
    draft.replace(index, Op("Reshape", (found,), op.outputs, {}, op.source))
    return 1


def _same_order(draft: Draft, chain: Sequence[Op]) -> bool:
    """Whether movements, the last one first, leave the elements of their source in order."""
    shape = draft.values[chain[-1].inputs[0]].shape
    axes: list[_Axis] = [[(size, prod(shape[i + 1 :]))] for i, size in enumerate(shape)]
    for op in reversed(chain):
        if op.kind != "Reshape":
            axes = [axes[d] for d in _dims(op, len(axes))]
            continue
        factors = [factor for axis in axes for factor in axis]
        regrouped = _regroup(factors, draft.values[op.outputs[0]].shape)
        if regrouped is None:
            return False
        axes = regrouped
    step = 1
    for size, stride in reversed([factor for axis in axes for factor in axis if factor[0] > 1]):
        if stride != step:
            return False
        step *= size
    return True


def _regroup(factors: _Axis, shape: Sequence[int]) -> list[_Axis] | None:
    """Factors dealt out to the dimensions of a new shape, split where one needs a part."""
    left = [factor for factor in reversed(factors) if factor[0] > 1]
    axes: list[_Axis] = []
    for size in shape:
        axis: _Axis = []
        wanted = size
        while wanted > 1:
            have, stride = left.pop()
            taken = min(wanted, have)
            if wanted % taken or have % taken:
                return None
            axis.append((taken, stride * (have // taken)))
            if have > taken:
                left.append((have // taken, stride))
            wanted //= taken
        axes.append(axis)
    return axes


def _merge_reshape(draft: Draft, index: int, op: Op) -> int:
    """reshape(reshape(x)) reads x directly."""
    before = draft.maker(op.inputs[0])
    if before is None or before.kind != "Reshape":
        return 0
    if draft.values[before.inputs[0]].layout != draft.values[op.outputs[0]].layout:
        return 0
    draft.replace(index, Op("Reshape", before.inputs, op.outputs, op.attrs, op.source))
    return 1
