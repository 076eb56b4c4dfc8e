"""Grouped and depthwise convolutions as several over runs of their channels.

ttnn spreads the weights of groups to one dense matrix, with zeros where groups do not meet: a
depthwise 5x5 convolution of 960 channels multiplies and reads 960 times what it needs. Runs of
channels in whole tiles are convolutions of their own, each with a matrix that is as many times
narrower and shorter; slices before and a join after are the price. The modelled time says how many.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from temper.cost import estimate_op
from temper.lowering.builder import Builder
from temper.passes.program_moves import op_ns
from temper.placement.modes import modes
from temper.placement.pieces import Meter, attrs_key, expand
from temper.program import Op, TensorSpec
from temper.program.tensor import SRAM, TILE, ceil_div

# Parts that are tried; more of them leave cores and launches idle.
_MOST = 8
# What a split must save to be taken: slices and joins cut chains of shards.
_WORTH = 0.85


def group_runs(b: Builder, op: Op, inputs: list[TensorSpec], out: TensorSpec) -> list[int]:
    """Groups of each run that a convolution is best cut into; one run where it stays whole."""
    groups = int(op.attr("groups"))
    inside, outside = op.attr("in_channels") // groups, op.attr("out_channels") // groups
    least = math.lcm(TILE // math.gcd(TILE, inside), TILE // math.gcd(TILE, outside))
    best, best_ns = [groups], _WORTH * _window_ns(b, op, inputs, out, whole=True)
    for count in range(2, _MOST + 1):
        each = least * ceil_div(groups, count * least)
        runs = list(_cut(groups, each))
        if len(runs) != count:
            continue
        time_ns = _runs_ns(b, op, inputs, out, runs)
        if time_ns < best_ns:
            best, best_ns = runs, time_ns
    return best


def _cut(groups: int, each: int) -> Iterator[int]:
    while groups > 0:
        yield min(each, groups)
        groups -= each


def _runs_ns(
    b: Builder, op: Op, inputs: list[TensorSpec], out: TensorSpec, runs: list[int]
) -> float:
    """Slices, convolutions and the join, and the moves around them that shards would spare."""
    groups, sram = int(op.attr("groups")), b.level >= 2
    x, weight, *bias = inputs
    total, parts = 0.0, []
    for run in runs:
        deep, wide = x.shape[-1] * run // groups, out.shape[-1] * run // groups
        cut, made = _columns(x, deep), _columns(out, wide)
        ends = [*x.shape[:-1], deep]
        begins = [0] * len(ends)
        attrs = {"begins": begins, "ends": ends, "steps": [1] * len(ends)}
        total += op_ns(Op("Slice", ("x",), ("y",), attrs), [x], cut, b.chip, sram)
        own = op.with_attrs(groups=run, in_channels=deep, out_channels=wide)
        given = [cut, _columns(weight, wide), *(replace(one, shape=(wide,)) for one in bias)]
        total += _window_ns(b, own, given, made, whole=False)
        parts.append(made)
    join = Op("Concat", ("x",) * len(parts), ("y",), {"dim": len(out.shape) - 1})
    # An activation after a join is an op of its own.
    after = Op("Unary", ("x",), ("y",), {"functions": [["relu"]]})
    total += op_ns(join, parts, out, b.chip, sram) + op_ns(after, [out], out, b.chip, sram)
    if sram:  # out of shards before the slices, into them after the join
        total += 2 * op_ns(Op("Copy", ("x",), ("y",)), [x], x, b.chip, sram)
    return total


def _columns(spec: TensorSpec, count: int) -> TensorSpec:
    return replace(spec, shape=(*spec.shape[:-1], count))


def _window_ns(
    b: Builder, op: Op, inputs: list[TensorSpec], out: TensorSpec, *, whole: bool
) -> float:
    """The fastest way of one convolution; a whole one finds its operand in shards at level 2."""
    sram = b.level >= 2
    meter = Meter(b.chip, estimate_op)
    given = [inputs[0].with_memory(SRAM) if sram else inputs[0], *inputs[1:]]
    best = math.inf
    for mode in modes(op, given, [out], b.chip, sram=sram, level=b.level):
        pieces = expand(op, attrs_key(op), mode, given, [out], sram=sram, to_dram=[True])
        if whole and sram:
            pieces = [piece for piece in pieces if piece.main or piece.op.kind in ("Halo", "Move")]
        best = min(best, sum(meter.measure(piece)[0] for piece in pieces))
    return best
