"""Duplicate and inverse data movement: reshapes, permutes, layout changes."""

from __future__ import annotations

from typing import Any

from temper.options import Options
from temper.passes.draft import Draft
from temper.program import Op

_INVERSE = {"Tilize": "Untilize", "Untilize": "Tilize"}


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
        elif op.kind == "Reshape":
            hits += _merge_reshape(draft, index, op)
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


def _merge_reshape(draft: Draft, index: int, op: Op) -> int:
    """reshape(reshape(x)) reads x directly."""
    before = draft.maker(op.inputs[0])
    if before is None or before.kind != "Reshape":
        return 0
    if draft.values[before.inputs[0]].layout != draft.values[op.outputs[0]].layout:
        return 0
    draft.replace(index, Op("Reshape", before.inputs, op.outputs, op.attrs, op.source))
    return 1
