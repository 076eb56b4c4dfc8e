"""Ways to do what is left of a map on the chip, each with its modelled time.

The same moves can be done in tiles, or in rows between an untilize and a tilize, or as rows looked
up by an embedding. Which costs least depends on how shapes fill tiles: a reshape to (197, 18, 64)
in tiles pads 18 rows to 32 and gathers them line by line, in rows it copies pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from temper.chips import Chip
from temper.cost import estimate_op
from temper.program import DRAM, Op, TensorSpec
from temper.program.index_map import IndexMap
from temper.program.index_moves import Move, moves, moves_cut_last
from temper.program.row_table import RowTable, as_rows
from temper.program.tensor import SRAM, TILE, Layout, turned_by_transpose

# Formats that exist in rows as well as in tiles.
_ROWED = frozenset({"bfloat16", "float32", "int32", "uint32"})
# A tensor up to this size is likely to lie in SRAM at level 2.
SRAM_BYTES = 16 << 20


@dataclass(frozen=True)
class MoveStep:
    """One op of a way: its kind, its attributes as text for comparison, and its result."""

    kind: str
    attrs: tuple[tuple[str, Any], ...]
    spec: TensorSpec
    rows: tuple[tuple[int, ...], bytes] | None = None  # an embedding's places: shape and bytes

    def op(self, inputs: Sequence[str], output: str, like: Op) -> Op:
        return Op(self.kind, tuple(inputs), (output,), dict(self.attrs), like.source)


Way = tuple[MoveStep, ...]


def ways(chart: IndexMap, before: TensorSpec, after: TensorSpec, *, gather: bool) -> Iterator[Way]:
    """Every way that is known from one value to a map of it."""
    steps = moves(chart)
    if steps is None or any(step.kind == "flip" for step in steps):
        return
    layouts: tuple[Layout, ...] = ("tile",)
    if before.format in _ROWED:
        layouts = ("tile", "row_major")
    for spelled in (steps, moves_cut_last(chart)):
        if spelled is not None:
            for layout in layouts:
                way = tuple(_in(spelled, before, after, layout))
                yield way
                if any(step.kind == "Transpose" for step in way):
                    yield tuple(map(_as_permute, way))
    heads = _heads_joined(chart)
    if heads is not None and before.format == "bfloat16":
        yield tuple(_by_heads(heads, before, after))
    if gather and before.format == "bfloat16" and not chart.is_reshape:
        looked_up = _looked_up(chart, before, after)
        if looked_up is not None:
            yield looked_up


def _in(
    steps: Sequence[Move], before: TensorSpec, after: TensorSpec, layout: Layout
) -> Iterator[MoveStep]:
    spec = before
    if steps and spec.layout != layout:
        spec = replace(spec, layout=layout)
        yield _relayout(spec)
    for step in steps:
        spec = replace(spec, shape=step.shape)
        kind, attrs = _described(step, len(step.shape))
        yield MoveStep(kind, tuple(attrs.items()), spec)
    if spec.layout != after.layout:
        yield _relayout(replace(spec, layout=after.layout))


def _heads_joined(chart: IndexMap) -> tuple[int, int, int, int] | None:
    """(B, heads, S, d) where a map puts heads of whole tiles side by side, None for other maps."""
    factors = chart.factors
    if len(factors) == 3:
        factors = ((1, prod(chart.source)), *factors)
    if len(factors) != 4 or chart.offset or not chart.is_bijection:
        return None
    (batch, _), (rows, _), (heads, _), (width, _) = factors
    strides = (heads * rows * width, width, rows * width, 1)
    if chart.axes[-1] != factors[2:] or width % TILE or strides != tuple(s for _, s in factors):
        return None
    return batch, heads, rows, width


def _by_heads(
    sizes: tuple[int, int, int, int], before: TensorSpec, after: TensorSpec
) -> Iterator[MoveStep]:
    """The op that joins heads, between other names of the same rows."""
    batch, heads, rows, width = sizes
    spec = before
    if spec.layout != "tile":
        spec = replace(spec, layout="tile")
        yield _relayout(spec)
    if spec.shape != sizes:
        spec = replace(spec, shape=sizes)
        yield MoveStep("Reshape", (), spec)
    spec = replace(spec, shape=(batch, rows, heads * width))
    yield MoveStep("ConcatHeads", (), spec)
    if spec.shape != after.shape:
        spec = replace(spec, shape=after.shape)
        yield MoveStep("Reshape", (), spec)
    if spec.layout != after.layout:
        yield _relayout(replace(spec, layout=after.layout))


def _relayout(spec: TensorSpec) -> MoveStep:
    return MoveStep("Tilize" if spec.layout == "tile" else "Untilize", (), spec)


def _described(step: Move, rank: int) -> tuple[str, Mapping[str, Any]]:
    if step.kind == "reshape":
        return "Reshape", {}
    if step.kind == "repeat":
        return "Repeat", {"repeats": step.values}
    if step.kind == "slice":
        ends = tuple(b + n for b, n in zip(step.values, step.shape, strict=True))
        return "Slice", {"begins": step.values, "ends": ends, "steps": (1,) * rank}
    turned = [i for i, d in enumerate(step.values) if i != d]
    if len(turned) == 2 and turned_by_transpose(rank, *turned):
        return "Transpose", {"dims": tuple(i - rank for i in turned)}
    return "Permute", {"dims": step.values}


def _as_permute(step: MoveStep) -> MoveStep:
    """Two axes change places by ttnn's permute too, whose kernels are others."""
    if step.kind != "Transpose":
        return step
    rank = len(step.spec.shape)
    order = list(range(rank))
    first, second = (d % rank for d in dict(step.attrs)["dims"])
    order[first], order[second] = second, first
    return MoveStep("Permute", (("dims", tuple(order)),), step.spec)


def _looked_up(chart: IndexMap, before: TensorSpec, after: TensorSpec) -> Way | None:
    table = (as_rows(chart) or _as_runs(chart)) if chart.source else None  # one number has no rows
    if table is None or (after.layout == "tile" and table.width % TILE):
        return None
    rows = replace(before, layout="row_major")
    way = [_relayout(rows)] if before.layout == "tile" else []
    flat = replace(rows, shape=(prod(rows.shape) // table.width, table.width))
    if flat != rows:
        way.append(MoveStep("Reshape", (), flat))
    # Tiles come straight out of the lookup where its rows fill them.
    full = table.filled(TILE) if after.layout == "tile" else table
    key = (full.rows.shape, full.rows.tobytes())
    way.append(MoveStep("Embeddings", (), replace(after, shape=full.shape), key))
    if full is not table:
        cut = Move("slice", table.shape, (0,) * len(table.shape))
        kind, attrs = _described(cut, len(table.shape))
        way.append(MoveStep(kind, tuple(attrs.items()), replace(after, shape=table.shape)))
    return tuple(way)


def _as_runs(chart: IndexMap) -> RowTable | None:
    """Rows of the result as runs within rows of the source, such as a pixel's channels."""
    width = chart.shape[-1] if chart.shape else 1
    count = prod(chart.source)
    if width < TILE or chart.axes[-1] != ((width, 1),) or count % width:
        return None
    return as_rows(IndexMap((count // width, width), chart.axes, chart.offset))


def time_ns(way: Way, before: TensorSpec, chip: Chip, *, sram: bool) -> float:
    """Modelled time of a way; at level 2 what is small enough is taken to lie in SRAM."""
    total = 0.0
    for step in way:
        inputs = [before]
        if step.rows is not None:
            inputs = [TensorSpec(step.rows[0], "int32", "row_major"), before]
        total += op_ns(step.op(("x",) * len(inputs), "y", _NOBODY), inputs, step.spec, chip, sram)
        before = step.spec
    return total


def op_ns(op: Op, inputs: Sequence[TensorSpec], out: TensorSpec, chip: Chip, sram: bool) -> float:
    """Modelled time of one op, its gap included."""
    lie = [_lying(spec, sram) for spec in (*inputs, out)]
    cost = estimate_op(op, lie[:-1], lie[-1:], chip, traced=True)
    return cost.kernel_ns + (cost.gap_ns if cost.kernel_ns else 0.0)


_NOBODY = Op("Copy", (), ())


def _lying(spec: TensorSpec, sram: bool) -> TensorSpec:
    return spec.with_memory(SRAM if sram and spec.size_bytes <= SRAM_BYTES else DRAM)
