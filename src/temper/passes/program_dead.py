"""Ops whose results nobody reads."""

from __future__ import annotations

from temper.options import Options
from temper.passes.draft import Draft


def remove_dead(draft: Draft, options: Options) -> int:
    """Backwards over the ops, then over the const-eval part; a write to state is always needed."""
    needed = set(draft.outputs)
    hits = 0
    for index in range(len(draft.ops) - 1, -1, -1):
        op = draft.ops[index]
        if op is None:
            continue
        if needed.isdisjoint(op.outputs) and not op.info.in_place:
            draft.remove(index)
            hits += 1
        else:
            needed.update(op.inputs)
    kept = []
    for op in reversed(draft.const_ops):
        if needed.isdisjoint(op.outputs):
            hits += 1
        else:
            needed.update(op.inputs)
            kept.append(op)
    draft.const_ops = kept[::-1]
    return hits
