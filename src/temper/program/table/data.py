"""Records of the ops that move values to other places: slices, joins, orders, look-ups, fills."""

from __future__ import annotations

import math
from collections.abc import Iterator

from temper.chips import Chip
from temper.program.op import Op, OpKind, Specs, register
from temper.program.table.shared import entry_bytes, same_count, through, width_tiles
from temper.program.tensor import TILE, TILE_BYTES, round_up

# Wider rows of the embedding table than this many tiles are not double-buffered.
_EMBEDDING_TILES = 64


def _concat_shapes(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    given = sum(math.prod(spec.shape) for spec in inputs)
    if given != math.prod(outputs[0].shape):
        yield f"the result has {math.prod(outputs[0].shape)} values, the operands {given}"


def _permute_shapes(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    shape, dims = inputs[0].shape if inputs else (), list(op.attr("dims"))
    if sorted(d % len(shape) if shape else d for d in dims) != list(range(len(shape))):
        yield f"{dims} is no order of {len(shape)} dimensions"
    elif tuple(shape[d] for d in dims) != outputs[0].shape:
        yield f"the result is {list(outputs[0].shape)}, not {[shape[d] for d in dims]}"


def _embedding_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Rows as they are, or tiles before and after; twice where there is room and need."""
    out = outputs[0]
    if out.layout != "tile":
        rows = math.prod(out.shape[:-1])
        return (2 if rows > chip.compute_cores else 1) * round_up(out.page_bytes, 32)
    width = width_tiles(out)
    return 2 * (2 if width <= _EMBEDDING_TILES else 1) * width * TILE_BYTES[out.format]


def _concat_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    aligned = all(spec.matrix[2] % TILE == 0 for spec in inputs)
    if aligned or outputs[0].layout != "tile":
        return through(op, inputs, outputs, chip)
    # Unaligned widths are untilized, joined and tilized in one op; when that does not fit ttnn
    # does it in several small ones.
    tiles = sum(width_tiles(spec) for spec in inputs) + width_tiles(outputs[0])
    whole = 3 * tiles * entry_bytes(outputs[0])
    return whole if whole < chip.sram_usable_bytes else 20 * entry_bytes(outputs[0])


def _pad_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    if outputs[0].layout == "tile":
        return 3 * entry_bytes(outputs[0])
    return 16 * outputs[0].page_bytes + 1024


def _permute_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Two tiles for the rows alone, four where columns become rows, else six."""
    rank, entry = len(op.attr("dims")), entry_bytes(outputs[0])
    last = op.attr("dims")[-1] % rank if rank else 0
    if outputs[0].layout != "tile":
        return 2 * entry if last == rank - 1 else 6 * entry
    return {rank - 1: 2, rank - 2: 4}.get(last, 6) * entry + 32


def _reshape_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """A tile and a map of segments; a change of the shape's name alone is a view."""
    before, after = inputs[0].matrix[1:], outputs[0].matrix[1:]
    rows_stay = before == after or (
        before[1] == after[1] and before[0] % TILE == 0 and after[0] % TILE == 0
    )
    if rows_stay or outputs[0].layout != "tile":
        return 0
    return entry_bytes(outputs[0]) + TILE * TILE


def _repeat_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    return 8 * entry_bytes(outputs[0])


register(
    # limits: where each column of the ids must lie, as the ends of tables in one; each row, where
    # limits_axis is 0.
    OpKind(
        "Embeddings",
        "embedding",
        "EmbeddingsDeviceOperation",
        ("ids", "table"),
        {"limits": [], "limits_axis": -1},
        buffers=_embedding_buffers,
    ),
    OpKind(
        "Gather",
        "gather_scatter",
        "GatherDeviceOperation",
        ("x", "index"),
        {"dim": 0},
        vendor_model=True,
    ),
    # x with src at the places of index along dim; reduce: None | add | multiply | amax | amin.
    OpKind(
        "Scatter",
        "gather_scatter",
        "ScatterDeviceOperation",
        ("x", "index", "src"),
        {"dim": 0, "reduce": None},
        vendor_model=True,
    ),
    # one entry a dimension
    OpKind(
        "Slice",
        "slice",
        "SliceDeviceOperation",
        ("x",),
        {"begins": [], "ends": [], "steps": []},
        buffers=through,
        vendor_model=True,
    ),
    OpKind(
        "Concat",
        "concat",
        "ConcatDeviceOperation",
        ("xs*",),
        {"dim": 0},
        shapes=_concat_shapes,
        buffers=_concat_buffers,
        vendor_model=True,
    ),
    # pads: [before, after] a dimension
    OpKind(
        "Pad",
        "pad",
        "PadDeviceOperation",
        ("x",),
        {"pads": [], "value": 0.0},
        buffers=_pad_buffers,
        vendor_model=True,
    ),
    OpKind(
        "Permute",
        "permute",
        "PermuteDeviceOperation",
        ("x",),
        {"dims": []},
        shapes=_permute_shapes,
        buffers=_permute_buffers,
        vendor_model=True,
    ),
    OpKind(
        "Transpose",
        "transpose",
        "TransposeDeviceOperation",
        ("x",),
        {"dims": [-2, -1]},
        vendor_model=True,
    ),
    # to the output's shape
    OpKind(
        "Reshape",
        "reshape",
        "ReshapeViewDeviceOperation",
        ("x",),
        shapes=same_count,
        buffers=_reshape_buffers,
    ),
    OpKind(
        "Repeat",
        "repeat",
        "RepeatDeviceOperation",
        ("x",),
        {"repeats": []},
        buffers=_repeat_buffers,
        vendor_model=True,
    ),
    OpKind(
        "Full",
        "full",
        "FullDeviceOperation",
        (),
        {"value": 0.0},
        buffers=through,
        vendor_model=True,
    ),
    OpKind(
        "Arange",
        "full",
        "ArangeDeviceOperation",
        (),
        {"start": 0, "end": 0, "step": 1},
        buffers=through,
        vendor_model=True,
    ),
)
