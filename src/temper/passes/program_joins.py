"""Rows that end inside a tile are joined as rows: seen here, so that the moves before it know.

ttnn joins tiles only at whole tiles. A class token in front of 196 patches goes by rows; where the
patches come out of a convolution flat, they are untilized flat and need no regrouping in tiles.
"""

from __future__ import annotations

from dataclasses import replace

from temper.options import Options
from temper.passes.draft import Draft
from temper.program import Op
from temper.program.tensor import BLOCK_FORMATS, TILE


def join_rows(draft: Draft, options: Options) -> int:
    """Every concatenation of ragged rows as untilize, concatenation of rows, tilize."""
    made = {name for op in draft.ops if op is not None for name in op.outputs}
    ops: list[Op | None] = []
    hits = 0
    for op in draft.ops:
        if op is None or not _is_ragged(draft, op):
            ops.append(op)
            continue
        hits += 1
        rows: dict[str, str] = {}
        for name in dict.fromkeys(op.inputs):
            rows[name] = draft.fresh(name)
            draft.values[rows[name]] = replace(draft.values[name], layout="row_major")
            step = Op("Untilize", (name,), (rows[name],), {}, op.source)
            given = name not in made and name not in draft.base.inputs
            (draft.const_ops if given and name not in draft.base.state else ops).append(step)
        joined = draft.fresh(op.outputs[0])
        draft.values[joined] = replace(draft.values[op.outputs[0]], layout="row_major")
        ops.append(replace(op, inputs=tuple(rows[n] for n in op.inputs), outputs=(joined,)))
        ops.append(Op("Tilize", (joined,), op.outputs, {}, op.source))
    if hits:
        draft.ops = ops
        draft.reindex()
    return hits


def _is_ragged(draft: Draft, op: Op) -> bool:
    if op.kind != "Concat":
        return False
    specs = [draft.values[name] for name in op.inputs]
    dim = op.attr("dim") % max(1, len(specs[0].shape))
    if dim != len(specs[0].shape) - 2 or all(s.shape[dim] % TILE == 0 for s in specs):
        return False
    return all(s.layout == "tile" and s.format not in BLOCK_FORMATS for s in specs)
