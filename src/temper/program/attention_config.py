"""Block sizes of attention: which ones are worth weighing, and the buffers that each needs.

ttnn takes blocks of one tile unless it is told otherwise. Larger blocks meet fewer blocks of keys
and read keys less often, but keep more in SRAM and may leave cores idle. Distribution and buffers
are those of ttnn 0.81, read off the library on a mocked device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from temper.chips import Chip
from temper.program.op import Op
from temper.program.tensor import TILE, TILE_BYTES, TensorSpec, ceil_div

Specs = Sequence[TensorSpec]

NAME = "SDPA"  # ttnn's class of program config, without its suffix
# Tiles of a block that are tried; each is evened out over the length.
_BLOCKS = (1, 2, 4, 8, 16)
_PARTIAL = 2048  # scores, sums and running outputs are bfloat16 tiles


def blocks_of(op: Op) -> tuple[int, int]:
    """Query and key block of an Sdpa op in tiles; ttnn's own choice is one tile."""
    config: Mapping[str, Any] = op.attr("config") or {}
    rows, columns = config.get("q_chunk_size") or TILE, config.get("k_chunk_size") or TILE
    return ceil_div(int(rows), TILE), ceil_div(int(columns), TILE)


def configs(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> list[dict[str, Any]]:
    """Program configs whose circular buffers fit, ttnn's own block sizes among them."""
    queries, keys = (ceil_div(spec.matrix[1], TILE) for spec in inputs[:2])
    found = []
    for high in _even(queries):
        for wide in _even(keys):
            config = {
                "name": NAME,
                "grid": list(chip.grid),
                "q_chunk_size": high * TILE,
                "k_chunk_size": wide * TILE,
            }
            chosen = op.with_attrs(config=config)
            if buffer_bytes(chosen, inputs, outputs, chip) <= chip.sram_usable_bytes:
                found.append(config)
    return found


def _even(tiles: int) -> list[int]:
    """Block sizes that cut a length into equal parts, or nearly so."""
    return sorted({ceil_div(tiles, ceil_div(tiles, most)) for most in _BLOCKS})


def blocks_a_core(heads: int, blocks: int, cores: int, *, causal: bool) -> int:
    """Most query blocks that one core works through; ``heads`` counts those of the whole batch.

    Causal ones are dealt out in pairs, a short one with a long one, when they are even in number.
    """
    pair = 2 if causal and blocks % 2 == 0 else 1
    return pair * ceil(heads * blocks / pair / cores)


def buffer_bytes(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Circular buffers of a core: blocks of q, k, v, mask, scores and outputs, and row sums."""
    q, k, v = inputs[:3]
    high, wide = blocks_of(op)
    depth, depth_v = ceil_div(q.matrix[2], TILE), ceil_div(v.matrix[2], TILE)
    batch, heads, rows, _ = (1, 1, 1, 1, *q.shape)[-4:]
    blocks = ceil_div(rows, high * TILE)
    causal = bool(op.attr("causal"))
    shares = blocks_a_core(batch * heads, blocks, chip.compute_cores, causal=causal)
    total = (2 if shares > 1 else 1) * high * depth * TILE_BYTES[q.format]
    total += 2 * wide * (depth * TILE_BYTES[k.format] + depth_v * TILE_BYTES[v.format])
    total += _mask_bytes(op, inputs, high, wide)
    total += high * wide * _PARTIAL + 2 * high * depth_v * _PARTIAL + (5 * high + 3) * _PARTIAL
    # Results leave in halves of two rows of tiles.
    return total + 2 * min(high, 2) * depth_v * TILE_BYTES[outputs[0].format]


def _mask_bytes(op: Op, inputs: Specs, high: int, wide: int) -> int:
    """A mask given is streamed in blocks; one that ttnn makes itself is a tile or two."""
    if len(inputs) > 3:
        return 2 * high * wide * TILE_BYTES[inputs[3].format]
    queries, keys = (spec.matrix[1] for spec in inputs[:2])
    if op.attr("causal") or keys % TILE:
        return 2 * _PARTIAL
    ragged = ceil_div(keys, TILE) % wide or ceil_div(queries, TILE) % high
    return _PARTIAL if ragged else 0
