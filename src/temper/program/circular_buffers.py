"""Bytes of circular buffers that an op takes on each of its cores.

The rules were read off the real ttnn 0.81 on a mocked device (benchmarks/memory_vs_ttnn.py prints
how far they are from it). A buffer that lies on a sharded tensor costs nothing extra and is not
counted. Kinds without a rule of their own hold two tiles of every operand and result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, sqrt

from temper.chips import Chip
from temper.program.attention_config import buffer_bytes
from temper.program.circular_buffers_compute import (
    conv,
    layer_norm,
    matmul,
    reduce,
    softmax,
)
from temper.program.op import Op
from temper.program.tensor import TILE, TILE_BYTES, TensorSpec, ceil_div

Specs = Sequence[TensorSpec]
Rule = Callable[[Op, Specs, Specs, Chip], int]

# Wider rows than this are split over cores by tilize and untilize.
_SPLIT_TILES = 64
# Tiles of both directions that a split tensor keeps, for the square root of a core's share.
_SPLIT_FACTOR = 1.9
# A row of the embedding table is moved in chunks of at most this many tiles.
_EMBEDDING_TILES = 64


def circular_buffer_bytes(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Bytes a core that the op's circular buffers take beside its tensors."""
    rule = _RULES.get(op.kind, _two_tiles)
    return rule(op, inputs, outputs, chip)


def _tile(spec: TensorSpec) -> int:
    """What one buffer entry holds: a tile, or a row of a row-major tensor, at most a tile."""
    return (
        TILE_BYTES[spec.format]
        if spec.layout == "tile"
        else min(TILE_BYTES[spec.format], max(32, spec.page_bytes))
    )


def _width_tiles(spec: TensorSpec) -> int:
    return ceil_div(spec.matrix[2], TILE)


def _two_tiles(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Double-buffered tiles of every operand and result."""
    return 2 * sum(_tile(spec) for spec in (*inputs, *outputs))


def _none(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    return 0


def _elementwise(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Nothing when all operands are shards of one kind; a broadcast operand is kept twice."""
    specs = (*inputs, *outputs)
    first = specs[0].memory
    if first.sharded and all(spec.memory == first for spec in specs):
        return 0
    total = _two_tiles(op, inputs, outputs, chip)
    if op.kind == "BinaryNg" and len(inputs) == 2:
        rows, columns = outputs[0].matrix[1:]
        for spec in inputs:
            if spec.matrix[1:] != (rows, columns):
                total += 2 * _tile(spec)
    return total


def _through(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Pages that pass through one double buffer: slice, copy, fill."""
    return 2 * _tile(outputs[0]) if outputs else 0


def _pad(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    if outputs[0].layout == "tile":
        return 3 * _tile(outputs[0])
    return 16 * outputs[0].page_bytes + 1024


def _repeat(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    return 8 * _tile(outputs[0])


def _concat(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    aligned = all(spec.matrix[2] % TILE == 0 for spec in inputs)
    if aligned or outputs[0].layout != "tile":
        return _through(op, inputs, outputs, chip)
    # Unaligned widths are untilized, joined and tilized in one op; when that does not fit ttnn
    # does it in several small ones.
    tiles = sum(_width_tiles(spec) for spec in inputs) + _width_tiles(outputs[0])
    whole = 3 * tiles * _tile(outputs[0])
    return whole if whole < chip.sram_usable_bytes else 20 * _tile(outputs[0])


def _tilize(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """A row of tiles in and out; wide tensors are split over the cores in both directions."""
    tiled = outputs[0] if op.kind == "Tilize" else inputs[0]
    pair = TILE_BYTES[inputs[0].format] + TILE_BYTES[outputs[0].format]
    width = _width_tiles(tiled)
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


def _embeddings(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    width = min(_width_tiles(outputs[0]), _EMBEDDING_TILES)
    copies = 2 if outputs[0].layout == "tile" else 1
    return copies * 2 * width * TILE_BYTES[outputs[0].format] + 128


def _heads(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Split: two rows of a head's tiles for q, k and v. Join: two rows of all heads."""
    if op.kind == "CreateQkvHeads":
        return sum(2 * _width_tiles(spec) * _tile(spec) for spec in outputs)
    return 2 * _width_tiles(outputs[0]) * _tile(outputs[0])


def _permute(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    return 6 * _tile(outputs[0]) + 32


def _reshape(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Two tiles and a map of segments; a change of the shape's name alone is a view."""
    before, after = inputs[0].matrix[1:], outputs[0].matrix[1:]
    rows_stay = before == after or (
        before[1] == after[1] and before[0] % TILE == 0 and after[0] % TILE == 0
    )
    return 0 if rows_stay else 2 * _tile(outputs[0]) + TILE * TILE


def _top_k(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Values and indices of a core's share; several cores share 1024 to 65536 columns."""
    width = _width_tiles(inputs[0])
    if not 32 <= width <= 2048:
        return 27 * _tile(inputs[0])
    return 54 * _tile(inputs[0]) + 256 * _tile(inputs[0]) * width // 1024


def _halo(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Two sticks of padding, and two rows of tiles when the input must be untilized."""
    shard = outputs[0].memory.shard or (0, inputs[0].matrix[2])
    sticks = 2 * shard[1] * 2
    if inputs[0].layout != "tile":
        return sticks
    return sticks + 2 * 2 * ceil_div(shard[1], TILE) * _tile(inputs[0])


def _rope(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """x, cos and sin of one row of tiles, the rotated half, two products and the sum."""
    width = _width_tiles(inputs[0])
    return 2 * width * sum(_tile(spec) for spec in inputs) + 4 * width * _tile(outputs[0])


_RULES: dict[str, Rule] = {
    "Matmul": matmul,
    "Conv2d": conv,
    "ConvTranspose2d": conv,
    "Pool2d": conv,
    "Halo": _halo,
    "Unary": _elementwise,
    "BinaryNg": _elementwise,
    "Ternary": _elementwise,
    "Typecast": _elementwise,
    "Reduce": reduce,
    "Softmax": softmax,
    "LayerNorm": layer_norm,
    "Sdpa": buffer_bytes,
    "Concat": _concat,
    "Slice": _through,
    "Pad": _pad,
    "Repeat": _repeat,
    "Copy": _through,
    "Full": _through,
    "Arange": _through,
    "Tilize": _tilize,
    "Untilize": _tilize,
    "Embeddings": _embeddings,
    "CreateQkvHeads": _heads,
    "ConcatHeads": _heads,
    "Permute": _permute,
    "Reshape": _reshape,
    "TopK": _top_k,
    "RotaryEmbedding": _rope,
    # The one buffer of these lies on the sharded tensor.
    "InterleavedToSharded": _none,
    "ShardedToInterleaved": _none,
    "Reshard": _none,
    "Host": _none,
    "PrepareConvWeight": _none,
}
