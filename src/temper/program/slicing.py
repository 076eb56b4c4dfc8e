"""Cut windows that exceed SRAM into slices, as ttnn does from DRAM.

Each slice is an ordinary window on part of the flat rows, so that numbers stay the same: rows are
sliced, each part is convolved or pooled, and the results are joined. The batch is cut first; an
image that alone is too large is cut along its height, with the rows that windows share in both.
"""

from __future__ import annotations

from temper.chips import Chip
from temper.program.conv_config import window_of
from temper.program.op import Op
from temper.program.program import Program
from temper.program.tensor import TensorSpec, ceil_div
from temper.program.window_modes import window_configs

_KINDS = frozenset({"Conv2d", "ConvTranspose2d", "Pool2d"})


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
    for parts in (n for n in range(2, batch + 1) if batch % n == 0):
        size = batch // parts
        if size == 1 or _fits(op, values, chip, {"batch": size}):
            cut = _cut(op, values, [_images(op, values, i * size, size) for i in range(parts)])
            return [piece for part in cut for piece in _fit_part(part, values, chip)]
    if op.kind == "ConvTranspose2d" or (op.kind == "Pool2d" and op.attr("ceil_mode")):
        return [op]
    height = window_of(op).out_h
    for parts in range(2, height + 1):
        rows = ceil_div(height, parts)
        strips = [_strip(op, start, min(start + rows, height)) for start in range(0, height, rows)]
        if all(_fits(op, values, chip, attrs) for _, _, attrs in strips):
            return _cut(op, values, strips)
    return [op]


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


_Part = tuple[int, int, dict[str, object]]  # first input row, end, changed attributes


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
    made.append(Op("Concat", tuple(results), op.outputs, {"dim": 2}, op.source))
    return made
