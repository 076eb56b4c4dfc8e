"""What device memory holds beyond the specs of values: spread weights, and maps of reshapes.

Both were read off ttnn 0.81.1's allocator on a mocked device.
"""

from __future__ import annotations

import math
from dataclasses import replace

from temper.chips import Chip
from temper.program.program import Program
from temper.program.tensor import TILE, TensorSpec, ceil_div, is_view, round_up

_FACE = 16
_SEGMENT_BYTES, _MAP_ALIGN = 16, 128
# Tiles of a result that are looked at for the longest map: the pattern repeats long before.
_TILES_SEEN = 64


def dense_weights(program: Program) -> dict[str, TensorSpec]:
    """Prepared weights as ttnn stores them: those of groups spread to dense matrices, and whole
    tiles of channels where the image's shards divide the channels."""
    found = {}
    for op in program.ops:
        if op.kind != "Conv2d" or op.attr("groups") != 1:
            continue
        spec = program.spec(op.inputs[1])
        channels, positions = op.attr("in_channels"), math.prod(op.attr("kernel"))
        divided = program.spec(op.inputs[0]).memory.sharding in ("block", "width")
        if divided and channels % TILE and spec.shape[-2] == positions * channels:
            shape = (*spec.shape[:-2], positions * round_up(channels, TILE), spec.shape[-1])
            found[op.inputs[1]] = replace(spec, shape=shape)
    for op in (*program.const_ops, *program.ops):
        groups = op.attr("groups") if op.kind == "PrepareConvWeight" else 1
        if groups > 1:
            spec = program.spec(op.outputs[0])
            *outer, rows, columns = spec.shape
            if op.attr("transposed"):
                shape = (*outer, rows, columns * groups)
            else:
                shape = (*outer, rows * groups, columns)
            found[op.outputs[0]] = replace(spec, shape=shape)
    return found


def reshape_maps(program: Program, chip: Chip) -> dict[str, int]:
    """Bytes of every DRAM bank for the map of each reshape of tiles, by the result's name.

    The map lives as long as the op's program is in the cache; equal reshapes share one.
    """
    seen: set[tuple[TensorSpec, TensorSpec]] = set()
    found = {}
    for op in program.ops:
        if op.kind != "Reshape":
            continue
        before, after = program.spec(op.inputs[0]), program.spec(op.outputs[0])
        tiles = before.layout == after.layout == "tile" and before.memory.buffer != "host"
        if not tiles or is_view(before, after) or (before, after) in seen:
            continue
        seen.add((before, after))
        page = round_up(map_bytes(before, after), chip.dram_alignment)
        found[op.outputs[0]] = ceil_div(after.tiles, chip.dram_banks) * page
    return found


def map_bytes(before: TensorSpec, after: TensorSpec) -> int:
    """Bytes of the map of one tile of the result: its runs of values that lie together before.

    Exact where rows are whole faces of a tile; up to 15% short where they are not.
    """
    batch, height, width = after.matrix
    columns = before.matrix[2]
    longest = 0
    for tile in range(min(_TILES_SEEN, batch * ceil_div(height, TILE) * ceil_div(width, TILE))):
        tile_row, across = divmod(tile, ceil_div(width, TILE))
        image, down = divmod(tile_row, ceil_div(height, TILE))
        rows = range(down * TILE, min(height, (down + 1) * TILE))
        runs = 1 if len(rows) < TILE else 0  # the padding below
        for row in rows:
            for start in range(across * TILE, min(width, (across + 1) * TILE), _FACE):
                first = (image * height + row) * width + start
                last = first + min(_FACE, width - start)
                runs += 1 + _breaks(last, columns) - _breaks(first + 1, columns)
        longest = max(longest, runs)
    return round_up(longest * _SEGMENT_BYTES, _MAP_ALIGN)


def _breaks(position: int, columns: int) -> int:
    """Places before a position where a row or a face of a tile begins."""
    rows, rest = divmod(position, columns)
    return rows * ceil_div(columns, _FACE) + ceil_div(rest, _FACE)
