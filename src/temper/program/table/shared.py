"""What several families say of themselves: common attributes, shape rules and buffer rules."""

from __future__ import annotations

import math
from collections.abc import Iterator

from temper.chips import Chip
from temper.program.op import Op, Specs
from temper.program.tensor import TILE, TILE_BYTES, TensorSpec, ceil_div, round_up

# Attributes of every op that computes on the matrix engine.
# fp32_acc: accumulate in float32 instead of a bfloat16 Dest.
COMPUTE = {"fidelity": "HiFi4", "fp32_acc": False, "packer_l1_acc": False, "approx": False}
# A fused activation or a chain of them ("activations", "functions", "lhs", "rhs", "post") is a
# list of [name, *parameters], e.g. [["relu"]] or [["clamp", 0.0, None], ["add", 1e-7], ["log"]].


def same_shape(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    """The result has its operand's shape."""
    if inputs and inputs[0].shape != outputs[0].shape:
        yield f"the result is {list(outputs[0].shape)}, the operand {list(inputs[0].shape)}"


def same_count(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    """The result has as many values as its operand."""
    if not inputs:
        return
    given, made = math.prod(inputs[0].shape), math.prod(outputs[0].shape)
    if given != made:
        yield f"the result has {made} values, the operand {given}"


def entry_bytes(spec: TensorSpec) -> int:
    """What one buffer entry holds: a tile, or a row of a row-major tensor, at most a tile."""
    return (
        TILE_BYTES[spec.format]
        if spec.layout == "tile"
        else min(TILE_BYTES[spec.format], max(32, spec.page_bytes))
    )


def width_tiles(spec: TensorSpec) -> int:
    """Tiles of a row."""
    return ceil_div(spec.matrix[2], TILE)


def two_tiles(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Double-buffered tiles of every operand and result."""
    return sum(two_tile_parts(op, inputs, outputs, chip).values())


def two_tile_parts(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> dict[str, int]:
    """The same, buffer by buffer."""
    named = [(f"in{i}", spec) for i, spec in enumerate(inputs)]
    named += [(f"out{i}" if i else "out", spec) for i, spec in enumerate(outputs)]
    return {name: 2 * entry_bytes(spec) for name, spec in named}


def no_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Nothing beside the tensors: the one buffer lies on a sharded tensor, or the host works."""
    return 0


def through(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Pages that pass through one double buffer: slice, copy, fill."""
    return 2 * entry_bytes(outputs[0]) if outputs else 0


def matrix(spec: TensorSpec, padded: bool) -> tuple[int, int, int]:
    """(batch, rows, columns), filled up to whole tiles where they are padded."""
    batch, rows, columns = spec.matrix
    if padded and spec.layout == "tile":
        return batch, round_up(rows, TILE), round_up(columns, TILE)
    return batch, rows, columns
