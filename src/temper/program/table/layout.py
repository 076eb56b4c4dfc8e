"""Records of the ops that keep every value and change its layout or its memory."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, sqrt

from temper.chips import Chip
from temper.program.op import Op, OpKind, Specs, register
from temper.program.table.shared import no_buffers, same_shape, through, width_tiles
from temper.program.tensor import TILE, TILE_BYTES, ceil_div

# Wider rows than this are split over cores by tilize and untilize.
_SPLIT_TILES = 64
# Tiles of both directions that a split tensor keeps, for the square root of a core's share.
_SPLIT_FACTOR = 1.9


def _tilize_shapes(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    yield from same_shape(op, inputs, outputs)
    if outputs[0].layout != "tile":
        yield "the result of Tilize is not in tiles"


def _untilize_shapes(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    yield from same_shape(op, inputs, outputs)
    if outputs[0].layout != "row_major":
        yield "the result of Untilize is not row-major"


def _to_sharded(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    yield from same_shape(op, inputs, outputs)
    if not outputs[0].memory.sharded:
        yield f"the result of {op.kind} is not sharded"


def _to_interleaved(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    yield from same_shape(op, inputs, outputs)
    if outputs[0].memory.sharded:
        yield f"the result of {op.kind} is sharded"


def _tilize_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """A row of tiles in and out; wide tensors are split over the cores in both directions."""
    tiled = outputs[0] if op.kind == "Tilize" else inputs[0]
    pair = TILE_BYTES[inputs[0].format] + TILE_BYTES[outputs[0].format]
    width = width_tiles(tiled)
    rows = max(1, tiled.tiles // max(1, width))
    # An even share for as many cores as possible, unless that would leave half of them idle.
    cores = chip.compute_cores
    even = next((n for n in range(cores, cores // 2, -1) if tiled.tiles % n == 0), cores)
    per_core = ceil_div(tiled.tiles, even)
    aligned = tiled.matrix[1] % TILE == 0 and tiled.matrix[2] % TILE == 0
    split = min(width, per_core + 1 if rows == 1 else ceil(_SPLIT_FACTOR * sqrt(per_core)))
    if op.kind == "Untilize" and aligned:
        depth = 2 * min(width, per_core)
    elif rows < chip.compute_cores and width >= _SPLIT_TILES:
        depth = split
    else:
        depth = width
    return (depth if depth * pair < chip.sram_usable_bytes else split) * pair


def _fill_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """The last tiles of rows, of columns, and of both."""
    rows, columns = (outputs[0].matrix[1] % TILE, outputs[0].matrix[2] % TILE)
    return (6 if rows and columns else 5) * TILE_BYTES[outputs[0].format]


register(
    OpKind(
        "Tilize",
        "tilize",
        "TilizeWithValPaddingDeviceOperation",
        ("x",),
        shapes=_tilize_shapes,
        buffers=_tilize_buffers,
    ),
    OpKind(
        "Untilize",
        "untilize",
        "UntilizeWithUnpaddingDeviceOperation",
        ("x",),
        shapes=_untilize_shapes,
        buffers=_tilize_buffers,
        vendor_model=True,
    ),
    OpKind(
        "InterleavedToSharded",
        "interleaved_to_sharded",
        "InterleavedToShardedDeviceOperation",
        ("x",),
        shapes=_to_sharded,
        buffers=no_buffers,
        vendor_model=True,
    ),
    OpKind(
        "ShardedToInterleaved",
        "sharded_to_interleaved",
        "ShardedToInterleavedDeviceOperation",
        ("x",),
        shapes=_to_interleaved,
        buffers=no_buffers,
        vendor_model=True,
    ),
    OpKind(
        "Reshard",
        "reshard",
        "ReshardDeviceOperation",
        ("x",),
        shapes=_to_sharded,
        buffers=no_buffers,
        vendor_model=True,
    ),
    # Writes what tiles hold beyond the logical shape, where they lie: reductions would sum it.
    OpKind(
        "FillPad",
        "fill_pad",
        "FillPadDeviceOperation",
        ("x",),
        {"value": 0.0},
        shapes=same_shape,
        buffers=_fill_buffers,
    ),
    OpKind(
        "Copy",
        "copy",
        "CopyDeviceOperation",
        ("x",),
        shapes=same_shape,
        buffers=through,
        vendor_model=True,
    ),
)
