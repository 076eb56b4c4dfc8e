"""Index maps: what a chain of reshapes, permutes, slices and the like reads, as one object.

A map says for every element of its result which element of the source it is. Each axis of the
result is a mixed-radix number: factors ``(size, stride)``, the most significant first, whose
strides count elements of the source in row-major order. So ``x.reshape(B, N, 3, h, d)
.permute(2, 0, 3, 1, 4)`` and any other spelling of it are equal objects. A repeated axis has
stride 0, a flipped one a negative stride.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from temper.formats.arrays import Array

Factor = tuple[int, int]
Axis = tuple[Factor, ...]


@dataclass(frozen=True)
class IndexMap:
    """A canonical map: equal maps of one source compare equal."""

    source: tuple[int, ...]
    axes: tuple[Axis, ...]
    offset: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the result."""
        return tuple(math.prod(size for size, _ in axis) for axis in self.axes)

    @property
    def factors(self) -> Axis:
        """All factors of the result in order, neighbours joined across axes."""
        return _joined(factor for axis in self.axes for factor in axis)

    @property
    def is_reshape(self) -> bool:
        """Whether the result holds the source's elements, all of them, in the source's order."""
        count = math.prod(self.source)
        return self.offset == 0 and self.factors == _joined([(count, 1)])

    @property
    def is_identity(self) -> bool:
        return self.is_reshape and self.shape == self.source

    @property
    def is_bijection(self) -> bool:
        """Whether every element of the source stands in the result exactly once."""
        step = 1
        for size, stride in sorted(self.factors, key=lambda f: f[1]):
            if stride != step:
                return False
            step *= size
        return self.offset == 0 and step == math.prod(self.source)

    @property
    def keeps_rows(self) -> bool:
        """Whether all rows of the source come in its order, whatever happens to their columns."""
        row = self.source[-1] if self.source else 1
        whole = _joined([(math.prod(self.source) // row, row)])
        return _joined(f for axis in self.axes for f in axis if f[1] % row == 0) == whole

    def indices(self) -> Array:
        """The flat index into the source for every element of the result."""
        total = np.full(self.shape, self.offset, dtype=np.int64)
        for place, axis in enumerate(self.axes):
            along = np.zeros(1, dtype=np.int64)
            for size, stride in axis:
                along = (along[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
            total += along.reshape([-1 if i == place else 1 for i in range(len(self.axes))])
        return total

    # --- views of a view ------------------------------------------------------------------------

    def reshape(self, shape: Sequence[int]) -> IndexMap | None:
        """The same elements in another shape; None where an axis would cut a factor unevenly."""
        axes = _dealt(self.factors, shape)
        return None if axes is None else IndexMap(self.source, axes, self.offset)

    def permute(self, dims: Sequence[int]) -> IndexMap:
        rank = len(self.axes)
        return IndexMap(self.source, tuple(self.axes[d % rank] for d in dims), self.offset)

    def slice(self, dim: int, start: int, count: int, step: int = 1) -> IndexMap | None:
        """``count`` elements of one axis from ``start`` on, every ``step``-th."""
        cut = _sliced(self.axes[dim], start, count, step)
        if cut is None:
            return None
        axis, offset = cut
        return IndexMap(self.source, _put(self.axes, dim, axis), self.offset + offset)

    def select(self, dim: int, index: int) -> IndexMap:
        """One place of an axis; the axis is gone."""
        one = self.slice(dim, index, 1)
        assert one is not None  # a single index always has its digits
        return IndexMap(self.source, one.axes[:dim] + one.axes[dim + 1 :], one.offset)

    def flip(self, dims: Iterable[int]) -> IndexMap:
        made, offset = self.axes, self.offset
        for dim in {d % len(self.axes) for d in dims}:
            offset += sum((size - 1) * stride for size, stride in made[dim])
            made = _put(made, dim, tuple((size, -stride) for size, stride in made[dim]))
        return IndexMap(self.source, made, offset)

    def repeat(self, repeats: Sequence[int]) -> IndexMap:
        """Axes several times over; more repeats than axes make new ones in front."""
        axes = ((),) * (len(repeats) - len(self.axes)) + self.axes
        longer = (_joined([(r, 0), *a]) for r, a in zip(repeats, axes, strict=True))
        return IndexMap(self.source, tuple(longer), self.offset)

    def expand(self, shape: Sequence[int]) -> IndexMap:
        """Axes of one element repeated to a shape, as torch does; -1 keeps a size."""
        lead = len(shape) - len(self.axes)
        sizes = (1,) * lead + self.shape
        return self.repeat([
            1 if wanted in (-1, have) else wanted for wanted, have in zip(shape, sizes, strict=True)
        ])  # fmt: skip

    # --- maps of maps ---------------------------------------------------------------------------

    def then(self, after: IndexMap) -> IndexMap | None:
        """This map followed by one of its result; None where digits would carry."""
        assert after.source == self.shape, (after.source, self.shape)
        digits = []  # (place value in the result, size, stride in the source), least first
        place = 1
        for size, stride in reversed(self.factors):
            digits.append((place, size, stride))
            place *= size
        used = [0] * len(digits)
        offset, left = self.offset, after.offset + _lowest(after)
        for i in range(len(digits) - 1, -1, -1):
            used[i], left = divmod(left, digits[i][0])
            offset += used[i] * digits[i][2]
        axes = []
        for axis in after.axes:
            made: list[Factor] = []
            for size, step in axis:
                walked = _walk(digits, used, size, step)
                if walked is None:
                    return None
                factors, moved = walked
                made += factors
                offset += moved
            axes.append(_joined(made))
        if any(total >= size for total, (_, size, _) in zip(used, digits, strict=True)):
            return None
        return IndexMap(self.source, tuple(axes), offset)

    def inverse(self) -> IndexMap | None:
        """The map back from the result to the source; None unless there is one."""
        if not self.is_bijection:
            return None
        place, placed = 1, []
        for size, stride in reversed(self.factors):
            placed.append((stride, size, place))
            place *= size
        ordered = [(size, step) for _, size, step in sorted(placed, reverse=True)]
        axes = _dealt(_joined(ordered), self.source)
        return None if axes is None else IndexMap(self.shape, axes)

    def without(
        self, dims: Iterable[int], *, keep: bool
    ) -> tuple[tuple[int, ...], IndexMap] | None:
        """Axes of the source that these axes of a bijection are, and the map of what is left.

        So a sum may change places with the map; ``keep`` leaves axes of one element. None where
        the axes are not whole ones of the source.
        """
        gone, left = set(dims), []
        counts = dict.fromkeys(range(len(self.source)), 1)
        for dim, axis in enumerate(self.axes):
            parts = [part for factor in axis for part in _places(self.source, factor)]
            if any(place < 0 for place, _, _ in parts):
                return None
            if dim not in gone:
                left.append(parts)
                continue
            for place, size, _ in parts:
                counts[place] *= size
            left += [[]] if keep else []
        over = tuple(i for i, size in enumerate(self.source) if counts[i] == size > 1)
        if any(count > 1 and i not in over for i, count in counts.items()):
            return None
        rest = tuple(size for i, size in enumerate(self.source) if i not in over)
        strides = dict(zip((i for i in counts if i not in over), _strides(rest), strict=True))
        axes = [_joined([(n, pace * strides[i]) for i, n, pace in parts]) for parts in left]
        return over, IndexMap(rest, tuple(axes))

    def of_rows(self, width: int) -> IndexMap | None:
        """This map for rows of another width, where rows of the source move whole.

        What works along the last axis alone, such as a linear layer, may so change places with
        the map: ``f(map(x)) == map.of_rows(f's width)(f(x))``.
        """
        row = self.source[-1] if self.source else 1
        if not self.axes or self.axes[-1] != _joined([(row, 1)]):
            return None
        if self.offset % row or any(s % row for axis in self.axes[:-1] for _, s in axis):
            return None
        lead = tuple(tuple((n, s // row * width) for n, s in a) for a in self.axes[:-1])
        offset = self.offset // row * width
        return IndexMap((*self.source[:-1], width), (*lead, _joined([(width, 1)])), offset)


def identity(shape: Sequence[int]) -> IndexMap:
    """Everything where it is."""
    axes, step = [], 1
    for size in reversed(shape):
        axes.append(_joined([(size, step)]))
        step *= size
    return IndexMap(tuple(shape), tuple(reversed(axes)))


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _places(shape: Sequence[int], factor: Factor) -> list[tuple[int, int, int]]:
    """A factor as (axis, size, pace) of the source's axes; an axis of -1 where it fits none."""
    size, stride = factor
    made: list[tuple[int, int, int]] = []
    for place, step in reversed(list(enumerate(_strides(shape)))):
        whole = step * shape[place]
        if size == 1:
            break
        if stride >= whole or shape[place] == 1:
            continue
        if stride < step or stride % step or whole % stride:
            return [(-1, 1, 1)]
        here = min(size, whole // stride)
        if size % here or (size > here and here != whole // stride):
            return [(-1, 1, 1)]
        made.append((place, here, stride // step))
        size, stride = size // here, whole
    return made[::-1] if size == 1 else [(-1, 1, 1)]


def joined_maps(parts: Sequence[IndexMap], dim: int) -> IndexMap | None:
    """Maps of one source behind one another along an axis, where strides say that too.

    Ranges that go on where the one before ends become one range; what then is alike and equally
    far apart is a further factor of the axis. So parts of a split put together are the whole.
    """
    whole: list[IndexMap] = []
    for part in parts:
        longer = _continued(whole[-1], part, dim) if whole else None
        whole[-1:] = [longer] if longer is not None else [*whole[-1:], part]
    first = whole[0]
    if len(whole) == 1:
        return first
    step = whole[1].offset - first.offset
    for place, part in enumerate(whole):
        if (part.source, part.axes) != (first.source, first.axes):
            return None
        if part.offset != first.offset + place * step:
            return None
    axis = _joined([(len(whole), step), *first.axes[dim]])
    return IndexMap(first.source, _put(first.axes, dim, axis), first.offset)


def _continued(one: IndexMap, next_: IndexMap, dim: int) -> IndexMap | None:
    """Two ranges of one axis as one, where the second begins at the end of the first."""
    if one.source != next_.source or _put(one.axes, dim, ()) != _put(next_.axes, dim, ()):
        return None
    first, second = one.axes[dim], next_.axes[dim]
    far = next_.offset - one.offset
    if len(first) > 1 or len(second) > 1 or not (first or second):
        return None
    stride = (first or second)[0][1]
    count = first[0][0] if first else 1
    if stride == 0 or far != count * stride or any(f[1] != stride for f in (*first, *second)):
        return None
    more = second[0][0] if second else 1
    axis = _joined([(count + more, stride)])
    return IndexMap(one.source, _put(one.axes, dim, axis), one.offset)


def _put(axes: tuple[Axis, ...], dim: int, axis: Axis) -> tuple[Axis, ...]:
    return (*axes[:dim], axis, *axes[dim + 1 :])


def _joined(factors: Iterable[Factor]) -> Axis:
    """Without ones; two factors that walk as one become one."""
    made: list[Factor] = []
    for size, stride in factors:
        if size == 1:
            continue
        if made and made[-1][1] == size * stride:
            made[-1] = (made[-1][0] * size, stride)
        else:
            made.append((size, stride))
    return tuple(made)


def _dealt(factors: Axis, shape: Sequence[int]) -> tuple[Axis, ...] | None:
    """Factors dealt out to the axes of a shape, split where one needs a part."""
    left = list(reversed(factors))
    axes = []
    for size in shape:
        axis: list[Factor] = []
        wanted = size
        while wanted > 1:
            if not left:
                return None
            have, stride = left.pop()
            taken = min(wanted, have)
            if wanted % taken or have % taken:
                return None
            axis.append((taken, stride * (have // taken)))
            if have > taken:
                left.append((have // taken, stride))
            wanted //= taken
        axes.append(_joined(axis))
    return tuple(axes) if not left else None


def _sliced(axis: Axis, start: int, count: int, step: int) -> tuple[Axis, int] | None:
    """A range of an axis: what is left of its factors, and how far the first element lies in."""
    if count == 1:
        offset = 0
        for size, stride in reversed(axis):
            start, digit = divmod(start, size)
            offset += digit * stride
        return (), offset
    if len(axis) == 1:
        stride = axis[0][1]
        return _joined([(count, stride * step)]), start * stride
    lead, inner = axis[0], axis[1:]
    block = math.prod(size for size, _ in inner)
    (first, low), (last, _) = divmod(start, block), divmod(start + (count - 1) * step, block)
    if first == last:
        cut = _sliced(inner, low, count, step)
        return None if cut is None else (cut[0], cut[1] + first * lead[1])
    if step == 1 and low == 0 and count % block == 0:
        return _joined([(count // block, lead[1]), *inner]), first * lead[1]
    if step % block == 0:
        within = _sliced(inner, low, 1, 1)
        assert within is not None
        return _joined([(count, lead[1] * (step // block))]), first * lead[1] + within[1]
    return None


def _lowest(chart: IndexMap) -> int:
    """How far below its offset a map with flipped axes reads."""
    return sum((size - 1) * stride for axis in chart.axes for size, stride in axis if stride < 0)


def _walk(
    digits: Sequence[tuple[int, int, int]], used: list[int], size: int, step: int
) -> tuple[list[Factor], int] | None:
    """A walk of ``size`` steps over a mixed-radix number, as factors of what its digits stand for.

    ``used`` counts how far each digit is reached; the second result is how far a backward walk
    starts behind its lowest element.
    """
    if step == 0:
        return [(size, 0)], 0
    back, step = step < 0, abs(step)
    made: list[Factor] = []
    for i, (place, radix, stride) in enumerate(digits):
        if size == 1:
            break
        if step >= place * radix:
            continue
        if step % place:
            return None
        pace = step // place
        here = size
        if used[i] + (size - 1) * pace >= radix:
            if radix % pace or size % (radix // pace):
                return None
            here = radix // pace
        made.append((here, stride * pace))
        used[i] += (here - 1) * pace
        size //= here
        step = place * radix
    if size > 1:
        return None
    moved = 0
    if back:
        moved = sum((n - 1) * s for n, s in made)
        made = [(n, -s) for n, s in made]
    return made[::-1], moved
