"""What device memory holds beyond the specs of values: spread weights, and maps of reshapes.

Both were read off ttnn 0.81.1's allocator on a mocked device.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from temper.chips import Chip
from temper.program.group_norm_config import as_tile_rows
from temper.program.program import Program
from temper.program.tensor import TILE, TensorSpec, ceil_div, is_view, round_up

_FACE = 16
_SEGMENT_BYTES = 16
_MAP_ALIGN = 16  # ttnn adds the remainder by this number of runs to them
# Tiles of a result that are looked at for the longest map, spread over all of them.
_TILES_SEEN = 256
Numbers = NDArray[np.int64]


def dense_weights(program: Program) -> dict[str, TensorSpec]:
    """Weights as ttnn stores them: those of grouped convolutions spread to dense matrices, with
    whole shards of channels before and after, those of group norms as rows."""
    found = {}
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
    for op in (op for op in program.ops if op.kind == "Conv2d"):
        name = op.inputs[1]
        spec = found.get(name, program.spec(name))
        channels, positions = op.attr("in_channels"), math.prod(op.attr("kernel"))
        shard, result = (program.spec(n).memory for n in (op.inputs[0], op.outputs[0]))
        rows, columns = spec.shape[-2:]
        if shard.shard is not None and rows == positions * channels:
            rows = positions * round_up(channels, shard.shard[1])
        if result.shard is not None and result.sharding in ("block", "width"):
            columns = round_up(columns, result.shard[1])
        if (rows, columns) != spec.shape[-2:]:
            found[name] = replace(spec, shape=(*spec.shape[:-2], rows, columns))
    affine = {n for op in program.ops if op.kind == "GroupNorm" for n in op.inputs[1:]}
    affine -= {n for op in program.ops if op.kind != "GroupNorm" for n in op.inputs}
    return found | {name: as_tile_rows(program.spec(name)) for name in affine}


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


@lru_cache(maxsize=4096)
def map_bytes(before: TensorSpec, after: TensorSpec) -> int:
    """Bytes of the map of one tile of the result: its runs of values that lie together before.

    Every tile has room for the longest map. A map has the same number of runs for each tile that
    it reads, so that the tile with the most sets it.
    """
    batch, height, width = after.matrix
    across, down = ceil_div(width, TILE), ceil_div(height, TILE)
    seen = np.unique(np.linspace(0, batch * down * across - 1, _TILES_SEEN).astype(np.int64))
    image, place = np.divmod(seen, down * across)
    rows = (place // across * TILE)[:, None, None] + np.arange(TILE)[:, None]
    columns = (place % across * TILE)[:, None, None] + np.arange(TILE)
    tile, row, column = np.nonzero((rows < height) & (columns < width))
    position = (image[tile] * height + rows[tile, row, 0]) * width + columns[tile, 0, column]
    _, source_height, source_width = before.matrix
    outer, source_column = np.divmod(position, source_width)
    source_image, source_row = np.divmod(outer, source_height)
    source_across, source_down = ceil_div(source_width, TILE), ceil_div(source_height, TILE)
    read = (source_image * source_down + source_row // TILE) * source_across
    read += source_column // TILE
    begins = np.ones(len(tile), bool)
    begins[1:] = (
        (np.diff(tile) != 0)
        | (np.diff(read) != 0)
        | (np.diff(_in_tile(source_row, source_column)) != 1)
        | (np.diff(_in_tile(row, column)) != 1)
    )
    sources = int(read.max()) + 1
    pairs, runs = np.unique(tile[begins] * sources + read[begins], return_counts=True)
    _, first, tiles_read = np.unique(pairs // sources, return_index=True, return_counts=True)
    longest = int((np.maximum.reduceat(runs, first) * tiles_read).max())
    return _SEGMENT_BYTES * (longest + longest % _MAP_ALIGN)


def _in_tile(row: Numbers, column: Numbers) -> Numbers:
    """Where a value lies in its tile: faces of 16 by 16, one after the other."""
    row, column = row % TILE, column % TILE
    face = row // _FACE * (TILE // _FACE) + column // _FACE
    return np.asarray((face * _FACE + row % _FACE) * _FACE + column % _FACE)
