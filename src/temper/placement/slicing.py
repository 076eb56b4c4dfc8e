"""Cut windows that exceed SRAM into slices, as ttnn does from DRAM.

Each slice is an ordinary window on part of the flat rows, so that numbers stay the same: rows are
sliced, each part is convolved or pooled, and the results are joined. The batch is cut first; an
image that alone is too large is cut along its height, with the rows that windows share in both.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from temper.chips import Chip
from temper.placement.window_modes import window_configs
from temper.program.conv_config import window_of
from temper.program.op import Op
from temper.program.program import Program
from temper.program.tensor import TILE, TensorSpec, ceil_div, divisors, round_up

_KINDS = frozenset({"Conv2d", "ConvTranspose2d", "Pool2d"})
_RARE = 4  # times as large a slice is worth an uneven end
_Part = tuple[int, int, dict[str, object]]  # first input row, end, changed attributes


def slice_windows(program: Program, chip: Chip) -> Program:
    """The program with every window that fits no scheme cut into the fewest slices that do."""
    values = dict(program.values)
    ops: list[Op] = []
    for op in program.ops:
        ops += _fit(op, values, chip) if op.kind in _KINDS else [op]
    return (
        program if len(ops) == len(program.ops) else program.replace(values=values, ops=tuple(ops))
    )


def _fit(op: Op, values: dict[str, TensorSpec], chip: Chip) -> list[Op]:
    """The op, or its slices when it does not fit; as it is when nothing helps."""
    if _fits(op, values, chip):
        return [op]
    batch = int(op.attr("batch"))
    size = _slice_size(op, values, chip, batch)
    if size < batch:
        starts = range(0, batch, size)
        cut = _cut(op, values, [_images(op, values, s, min(size, batch - s)) for s in starts])
        return [piece for part in cut for piece in _fit_part(part, values, chip)]
    if op.kind == "Pool2d" and op.attr("ceil_mode"):
        return [op]
    height = window_of(op).out_h
    for parts in range(2, height + 1):
        strips = _strips(op, height, ceil_div(height, parts))
        if all(_fits(op, values, chip, attrs) for _, _, attrs in strips):
            return _cut(op, values, strips)
    return [op]


def _strips(op: Op, height: int, rows: int) -> list[_Part]:
    """The image cut into strips of so many output rows; transposed ones begin at an input row."""
    if op.kind != "ConvTranspose2d":
        return [_strip(op, start, min(start + rows, height)) for start in range(0, height, rows)]
    step, top = op.attr("stride")[0], op.attr("padding")[0]
    rows = round_up(rows, step)
    # Rows below the last input row's reach are the last strip's.
    end = min(height, op.attr("in_h") * step - top)
    cuts = range(rows - top % step, end, rows)
    return [_spread(op, start, end) for start, end in pairwise([0, *cuts, height])]


def _slice_size(op: Op, values: dict[str, TensorSpec], chip: Chip, batch: int) -> int:
    """Images of a slice: the largest that fits and divides the batch.

    Where divisors are rare that would be many small slices: then the last one is smaller.
    """

    def fits(size: int) -> bool:
        return size == 1 or _fits(op, values, chip, {"batch": size})

    even = next((size for size in reversed(divisors(batch)[:-1]) if fits(size)), batch)
    low, high = even * _RARE, batch
    if low >= high or not fits(low):
        return even
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _fit_part(op: Op, values: dict[str, TensorSpec], chip: Chip) -> list[Op]:
    return _fit(op, values, chip) if op.kind in _KINDS else [op]


def _fits(
    op: Op,
    values: dict[str, TensorSpec],
    chip: Chip,
    attrs: dict[str, object] | None = None,
) -> bool:
    part = op.with_attrs(**(attrs or {}))
    window = window_of(part)
    if window.is_matmul:
        return True
    x, out = values[op.inputs[0]], values[op.outputs[0]]
    rows = part.attr("batch") * part.attr("in_h") * part.attr("in_w")
    inputs = [_rows(x, rows), *(values[name] for name in op.inputs[1:])]
    return bool(
        window_configs(part, inputs, [_rows(out, window.out_rows)], chip, every_scheme=False)
    )


def _rows(spec: TensorSpec, rows: int) -> TensorSpec:
    return TensorSpec((1, 1, rows, spec.shape[-1]), spec.format, spec.layout, spec.memory)


def _images(op: Op, values: dict[str, TensorSpec], first: int, size: int) -> _Part:
    rows = op.attr("in_h") * op.attr("in_w")
    return first * rows, (first + size) * rows, {"batch": size}


def _strip(op: Op, start: int, end: int) -> _Part:
    """Output rows ``start`` to ``end`` of one image, and the input rows that they look at."""
    top, _, left, right = op.attr("padding")
    step, reach = op.attr("stride")[0], op.attr("dilation")[0] * (op.attr("kernel")[0] - 1)
    height, width = op.attr("in_h"), op.attr("in_w")
    first, last = start * step - top, (end - 1) * step - top + reach + 1
    kept = max(0, first), min(height, last)
    attrs: dict[str, object] = {
        "in_h": kept[1] - kept[0],
        "padding": [kept[0] - first, last - kept[1], left, right],
    }
    return kept[0] * width, kept[1] * width, attrs


def _spread(op: Op, start: int, end: int) -> _Part:
    """As ``_strip`` for a transposed convolution, whose padding takes rows of the result away."""
    top, _, left, right = op.attr("padding")
    step, reach = op.attr("stride")[0], op.attr("dilation")[0] * (op.attr("kernel")[0] - 1)
    height, width = op.attr("in_h"), op.attr("in_w")
    first = max(0, ceil_div(start + top - reach, step))
    last = min(height, (end - 1 + top) // step + 1)
    above = start + top - first * step
    below = (last - first - 1) * step + reach + 1 - above - (end - start)
    attrs: dict[str, object] = {
        "in_h": last - first,
        "padding": [above, max(0, below), left, right],
        "output_padding": [max(0, -below), op.attr("output_padding")[1]],
    }
    return first * width, last * width, attrs


def _cut(op: Op, values: dict[str, TensorSpec], parts: list[_Part]) -> list[Op]:
    x, out = values[op.inputs[0]], values[op.outputs[0]]
    made: list[Op] = []
    results = []
    for number, (begin, end, attrs) in enumerate(parts):
        piece = f"{op.inputs[0]}__slice_{op.outputs[0]}_{number}"
        result = f"{op.outputs[0]}__part{number}"
        part = Op(op.kind, (piece, *op.inputs[1:]), (result,), {**op.attrs, **attrs}, op.source)
        values[piece] = _rows(x, end - begin)
        values[result] = _rows(out, window_of(part).out_rows)
        cut = {"begins": [0, 0, begin, 0], "ends": [1, 1, end, x.shape[-1]], "steps": [1] * 4}
        made += [Op("Slice", (op.inputs[0],), (piece,), cut, op.source), part]
        results.append(result)
    if out.layout == "row_major" or all(values[name].shape[2] % TILE == 0 for name in results):
        return [*made, Op("Concat", tuple(results), op.outputs, {"dim": 2}, op.source)]
    # Parts that end inside a tile are joined as rows.
    rows = [f"{name}__rows" for name in results]
    for name, row in zip(results, rows, strict=True):
        values[row] = replace(values[name], layout="row_major")
        made.append(Op("Untilize", (name,), (row,), {}, op.source))
    joined = f"{op.outputs[0]}__rows"
    values[joined] = replace(out, layout="row_major")
    made.append(Op("Concat", tuple(rows), (joined,), {"dim": 2}, op.source))
    return [*made, Op("Tilize", (joined,), op.outputs, {}, op.source)]
