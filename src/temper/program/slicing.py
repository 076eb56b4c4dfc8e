"""Cut windows that exceed SRAM into slices of the batch, as ttnn does from DRAM.

Each slice is an ordinary window on part of the flat rows, so that numbers stay the same: the rows
are sliced, each part is convolved or pooled, and the results are joined.
"""

from __future__ import annotations

from collections.abc import Callable

from temper.chips import Chip
from temper.program.conv_config import window_of
from temper.program.op import Op
from temper.program.program import Program
from temper.program.tensor import TensorSpec
from temper.program.window_modes import window_configs

_KINDS = frozenset({"Conv2d", "ConvTranspose2d", "Pool2d"})


def slice_windows(program: Program, chip: Chip) -> Program:
    """The program with every window that fits no scheme cut into the fewest slices that do."""
    values = dict(program.values)
    ops: list[Op] = []
    changed = False
    for op in program.ops:
        parts = _slices(op, program, chip) if op.kind in _KINDS else 1
        if parts == 1:
            ops.append(op)
            continue
        changed = True
        ops += _cut(op, parts, values)
    return program.replace(values=values, ops=tuple(ops)) if changed else program


def _slices(op: Op, program: Program, chip: Chip) -> int:
    """1 when the op fits (or cannot be cut), else the fewest slices of the batch that fit."""
    inputs, outputs = program.input_specs(op), program.output_specs(op)

    def fits(batch: int) -> bool:
        part = op.with_attrs(batch=batch)
        window = window_of(part)
        if window.is_matmul:
            return True
        x = TensorSpec((1, 1, batch * op.attr("in_h") * op.attr("in_w"), inputs[0].shape[-1]),
                       inputs[0].format, inputs[0].layout)  # fmt: skip
        rows = outputs[0].shape[-2] // op.attr("batch") * batch
        out = TensorSpec((1, 1, rows, outputs[0].shape[-1]), outputs[0].format, outputs[0].layout)
        return bool(window_configs(part, [x, *inputs[1:]], [out], chip, every_scheme=False))

    return _fewest(int(op.attr("batch")), fits)


def _fewest(batch: int, fits: Callable[[int], bool]) -> int:
    for parts in range(1, batch + 1):
        if batch % parts == 0 and fits(batch // parts):
            return parts
    return 1


def _cut(op: Op, parts: int, values: dict[str, TensorSpec]) -> list[Op]:
    x, out = values[op.inputs[0]], values[op.outputs[0]]
    batch = op.attr("batch") // parts
    in_rows, out_rows = x.shape[-2] // parts, out.shape[-2] // parts
    made: list[Op] = []
    results = []
    for part in range(parts):
        piece = f"{op.inputs[0]}__slice_{op.outputs[0]}_{part}"
        result = f"{op.outputs[0]}__part{part}"
        values[piece] = TensorSpec((1, 1, in_rows, x.shape[-1]), x.format, x.layout, x.memory)
        values[result] = TensorSpec(
            (1, 1, out_rows, out.shape[-1]), out.format, out.layout, out.memory
        )
        begins = [0, 0, part * in_rows, 0]
        ends = [1, 1, (part + 1) * in_rows, x.shape[-1]]
        cut = {"begins": begins, "ends": ends, "steps": [1, 1, 1, 1]}
        made.append(Op("Slice", (op.inputs[0],), (piece,), cut, op.source))
        made.append(
            Op(op.kind, (piece, *op.inputs[1:]), (result,), {**op.attrs, "batch": batch}, op.source)
        )
        results.append(result)
    made.append(Op("Concat", tuple(results), op.outputs, {"dim": 2}, op.source))
    return made
