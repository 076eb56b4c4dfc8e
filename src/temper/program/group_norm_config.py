"""How ttnn spreads a group norm over cores, and the circular buffers that it takes for it.

Read off ttnn 0.81.1 on a mocked device.
"""

from __future__ import annotations

import math
from dataclasses import replace

from temper.chips import Chip
from temper.program.tensor import TILE, TILE_BYTES, TensorSpec, ceil_div

# Positions of an image that one block of the result holds, as ttnn chooses for a single image.
_BLOCK = 128 * 128


def group_norm_grid(x: TensorSpec, groups: int, chip: Chip) -> tuple[int, int]:
    """Cores of a group norm over DRAM: columns divide the groups, rows divide the tile rows."""
    channels, rows = x.shape[-1], x.physical_2d[0] // TILE
    across = max(
        n
        for n in range(1, chip.grid[0] + 1)
        if channels % n == 0 and (channels // n) % TILE == 0 and groups % n == 0
    )
    down = max(n for n in range(1, chip.grid[1] + 1) if rows % n == 0)
    return across, down


def group_norm_blocks(x: TensorSpec) -> int:
    """Blocks of the result: ttnn's number for one image, and as many more for a batch."""
    return max(1, ceil_div(x.physical_2d[0], _BLOCK))


def group_norm_buffers(x: TensorSpec, groups: int, affine: int, chip: Chip) -> int:
    """Bytes per core: seven blocks of the tiles that a group touches, and single tiles."""
    channels = x.shape[-1]
    if channels % TILE or x.physical_2d[0] % TILE:
        return 0  # nothing that ttnn takes
    across, down = group_norm_grid(x, groups, chip)
    own, group = channels // across, max(1, channels // groups)
    touched = max(ceil_div(start % TILE + group, TILE) for start in range(0, own, group))
    rows = ceil_div(x.physical_2d[0] // TILE // down, group_norm_blocks(x))
    entry, plain = TILE_BYTES[x.format], TILE_BYTES["bfloat16"]
    singles = 8 * entry + plain + 2 * touched * plain
    return 7 * rows * touched * entry + singles + affine * ceil_div(own, TILE) * plain


def as_tile_rows(spec: TensorSpec) -> TensorSpec:
    """Weight or bias of a group norm as ttnn takes it: rows of a tile's width."""
    rows = (1, 1, math.prod(spec.shape) // TILE, TILE)
    return replace(spec, shape=rows, layout="row_major")
