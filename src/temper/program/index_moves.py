"""An index map as the fewest moves: one reshape, slice, flip, permute, repeat and reshape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from temper.program.index_map import IndexMap

Kind = Literal["reshape", "slice", "flip", "permute", "repeat"]


@dataclass(frozen=True)
class Move:
    """One step: ``values`` are begins of a slice, flipped axes, dims or repeats."""

    kind: Kind
    shape: tuple[int, ...]  # of the result
    values: tuple[int, ...] = field(default=())


def moves(chart: IndexMap) -> list[Move] | None:
    """Steps from the source to the map's result, in order; None where steps would overlap."""
    kept = [(n, abs(s), s < 0) for n, s in chart.factors if s]
    digits = sorted(((s, n, back) for n, s, back in kept), reverse=True)
    lowest = chart.offset + sum((n - 1) * s for n, s in chart.factors if s < 0)
    sizes, begins, counts = [], [], []
    above = math.prod(chart.source)
    for stride, count, _ in digits:
        if above % stride:
            return None
        begin, lowest = divmod(lowest, stride)
        if begin + count > above // stride:
            return None
        sizes.append(above // stride)
        begins.append(begin)
        counts.append(count)
        above = stride
    # Digits below the last stride and those that a slice leaves single.
    sizes.append(above)
    begins.append(lowest)
    counts.append(1)
    steps: list[Move] = []
    shape = _step(steps, chart.source, *_joined(sizes, begins, counts))
    shape = _reshaped(steps, shape, counts[:-1])
    flipped = tuple(i for i, (_, _, back) in enumerate(digits) if back)
    if flipped:
        steps.append(Move("flip", shape, flipped))
    order = [digits.index((s, n, back)) for n, s, back in kept]
    if len(set(order)) != len(order):
        return None  # a diagonal: two factors of one stride
    if order != sorted(order):
        shape = tuple(shape[i] for i in order)
        steps.append(Move("permute", shape, tuple(order)))
    repeats = [n if s == 0 else 1 for n, s in chart.factors]
    if any(r > 1 for r in repeats):
        shape = _reshaped(steps, shape, [1 if s == 0 else n for n, s in chart.factors])
        shape = tuple(size * r for size, r in zip(shape, repeats, strict=True))
        steps.append(Move("repeat", shape, tuple(repeats)))
    _reshaped(steps, shape, chart.shape)
    return _without_detours(chart.source, steps)


def moves_cut_last(chart: IndexMap) -> list[Move] | None:
    """The same with the slice behind the permute: the source is turned once for all its slices.

    Only for maps that pick single places of some axes and take the others whole.
    """
    digits = sorted(((s, n) for n, s in chart.factors), reverse=True)
    if any(s <= 0 for s, _ in digits) or (chart.offset == 0 and chart.is_bijection):
        return None
    sizes, begins = [], []  # picked digits and whole ones, from the most significant down
    above, left = math.prod(chart.source), chart.offset
    order: list[tuple[int, int]] = []  # (stride, place among the sizes) of whole digits
    for stride, count in [*digits, (1, 1)]:
        if stride * count and above % (stride * count):
            return None
        picked = above // (stride * count)
        if picked > 1:
            begin, left = divmod(left, stride * count)
            sizes.append(picked)
            begins.append(begin)
        if count > 1:
            order.append((stride, len(sizes)))
            sizes.append(count)
            begins.append(-1)
        above = stride
    if left or -1 not in begins:
        return None
    places = dict(order)
    singles = [i for i, b in enumerate(begins) if b >= 0]
    dims = [*singles, *(places[stride] for _, stride in chart.factors)]
    turned = tuple(sizes[i] for i in dims)
    cut = tuple(1 if k < len(singles) else size for k, size in enumerate(turned))
    firsts = tuple(max(0, begins[i]) for i in dims)
    steps = [
        Move("reshape", tuple(sizes)),
        Move("permute", turned, tuple(dims)),
        Move("slice", cut, firsts),
        Move("reshape", chart.shape),
    ]
    return _without_detours(chart.source, steps)


def _without_detours(source: tuple[int, ...], steps: Sequence[Move]) -> list[Move]:
    """Of reshapes in a row the last one counts, and that only if it changes anything."""
    made: list[Move] = []
    for step in steps:
        if step.kind == "reshape" and made and made[-1].kind == "reshape":
            made.pop()
        before = made[-1].shape if made else source
        if step.kind != "reshape" or step.shape != before:
            made.append(step)
    return made


def _joined(
    sizes: Sequence[int], begins: Sequence[int], counts: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """Neighbouring digits that are read whole need no axis of their own before the slice."""
    made: list[tuple[int, int, int]] = []
    for size, begin, count in zip(sizes, begins, counts, strict=True):
        if made and count == size:  # below a digit, read whole: the two are one range
            above, start, many = made[-1]
            made[-1] = (above * size, start * size, many * size)
        elif size > 1:
            made.append((size, begin, count))
    return [m[0] for m in made], [m[1] for m in made], [m[2] for m in made]


def _step(
    steps: list[Move],
    source: tuple[int, ...],
    sizes: list[int],
    begins: list[int],
    counts: list[int],
) -> tuple[int, ...]:
    """The slice, in the source's own shape where it cuts axes of that alone."""
    if counts == sizes:
        return source
    own = _in_own_shape(source, sizes, begins, counts)
    if own is not None:
        first, cut = own
        steps.append(Move("slice", cut, first))
        return cut
    shape = _reshaped(steps, source, sizes)
    steps.append(Move("slice", tuple(counts), tuple(begins)))
    return tuple(counts) if shape else ()


def _in_own_shape(
    source: tuple[int, ...], sizes: list[int], begins: list[int], counts: list[int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The same slice on the source's axes: begins and the shape that is left."""
    left = list(zip(sizes, begins, counts, strict=True))[::-1]
    firsts, shape = [], []
    for size in source:
        if size == 1:
            firsts.append(0)
            shape.append(1)
            continue
        if not left:
            return None
        have, begin, count = left.pop()
        if have > size:
            inner = have // size
            if have % size or (begin or count != have):
                # The digit spans further axes: only its outermost part may be cut.
                if have % size or begin % inner or count % inner:
                    return None
                left.append((inner, 0, inner))
                firsts.append(begin // inner)
                shape.append(count // inner)
                continue
            left.append((inner, 0, inner))
            firsts.append(0)
            shape.append(size)
            continue
        if have < size:
            return None
        firsts.append(begin)
        shape.append(count)
    return (tuple(firsts), tuple(shape)) if not left else None


def _reshaped(steps: list[Move], shape: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    if tuple(shape) != tuple(wanted):
        steps.append(Move("reshape", tuple(wanted)))
    return tuple(wanted)
