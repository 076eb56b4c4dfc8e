"""Circular buffers of the ops that keep more than a few tiles: matmul, conv, norms, attention."""

from __future__ import annotations

from collections.abc import Sequence

from temper.chips import Chip
from temper.program.conv_config import POOL_BYTES, window_of
from temper.program.conv_config import choose as choose_conv
from temper.program.matmul_config import MULTI_CORE, REUSE, REUSE_1D, MatmulConfig
from temper.program.matmul_config import choose as choose_matmul
from temper.program.op import Op
from temper.program.tensor import TILE, TILE_BYTES, TensorSpec, ceil_div, round_up

Specs = Sequence[TensorSpec]

# Rows of tiles that the wide variants of softmax and the norms keep at a time (read off ttnn).
_SOFTMAX_WIDE = 80
_NORM_WIDE = 56
_NORM_WIDE_AFFINE = 28


def matmul_config_of(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> MatmulConfig:
    """The op's own config, or the one that ttnn would choose."""
    config = op.attr("config")
    if config:
        return MatmulConfig.from_attrs(config)
    batch, m, k, n = matmul_shape(op, inputs)
    return choose_matmul(
        batch, m, k, n, inputs[0], inputs[1], outputs[0], chip,
        fp32_acc=op.attr("fp32_acc"), bias_format=inputs[2].format if len(inputs) > 2 else None,
    )  # fmt: skip


def matmul_shape(op: Op, inputs: Specs) -> tuple[int, int, int, int]:
    """(batch of a, M, K, N) of a Matmul op, transposes applied."""
    batch, m, k = inputs[0].matrix
    if op.attr("transpose_a"):
        m, k = k, m
    n = inputs[1].matrix[1 if op.attr("transpose_b") else 2]
    return batch, m, k, n


def matmul(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    a, b, out = inputs[0], inputs[1], outputs[0]
    config = matmul_config_of(op, inputs, outputs, chip)
    tile_a, tile_b, tile_out = (TILE_BYTES[spec.format] for spec in (a, b, out))
    if config.name == MULTI_CORE:
        return 2 * (tile_a + tile_b + tile_out)
    batch, _, k, _ = matmul_shape(op, inputs)
    k_blocks = ceil_div(ceil_div(k, TILE), config.in0_block_w)
    height, width = config.out_block_h, config.out_block_w
    split = (height, width) != (config.per_core_m, config.per_core_n)
    loops = 1 if config.fuse_batch or config.name == REUSE else batch
    in0 = height * config.in0_block_w * tile_a * (2 if k_blocks * loops > 1 else 1)
    in0_lies_on_shard = a.memory.sharding == "height" and not split
    # One weight for a looped batch is read once where the rows are multicast or it is one tile.
    once = config.name == REUSE_1D and b.matrix[0] == 1 and (config.mcast_in0 or width == 1)
    in1_loops = k_blocks * (1 if once else loops)
    in1 = width * config.in0_block_w * tile_b * (2 if in1_loops > 1 else 1)
    total = (0 if in0_lies_on_shard and config.name in (REUSE_1D, REUSE) else in0) + in1
    partial = 4096 if op.attr("fp32_acc") else max(2048, tile_out)
    if out.memory.sharded:
        total += height * width * partial if partial != tile_out else 0
    else:
        total += height * width * (tile_out + (partial if partial != tile_out else 0))
    if len(inputs) > 2:
        total += width * TILE_BYTES[inputs[2].format]
    return total


def conv(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    if op.kind == "Pool2d":
        return POOL_BYTES
    window = window_of(op)
    memory = outputs[0].memory
    if window.is_matmul:  # ttnn calls its matmul for it
        columns = TensorSpec((window.in_channels, window.out_channels), inputs[1].format)
        attrs = {"fp32_acc": op.attr("fp32_acc"), "config": None}
        same = Op("Matmul", op.inputs, op.outputs, attrs)
        return matmul(same, [inputs[0], columns, *inputs[2:]], outputs, chip)
    config = choose_conv(
        window, inputs[0], outputs[0], chip, weight_format=inputs[1].format, bias=len(inputs) > 2,
        fp32_acc=op.attr("fp32_acc"),
        act_block_h=op.attr("act_block_h") if op.kind == "Conv2d" else 0,
        sharding=memory.sharding if memory.sharded else None,
    )  # fmt: skip
    return config.circular_bytes


def softmax(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """The row and its exponentials, two blocks of output, scalers and sums."""
    tile_in, tile_out = TILE_BYTES[inputs[0].format], TILE_BYTES[outputs[0].format]
    fp32 = inputs[0].format == "float32"
    partial = 4096 if fp32 or op.attr("fp32_acc") else 2048
    tiles = ceil_div(inputs[0].matrix[2], TILE)
    # Blocks of four tiles, or of three where that takes no more blocks and leaves no gap.
    block = tiles if tiles <= 3 else 3 if tiles in (6, 9) else 4
    width = round_up(tiles, block)
    ragged = inputs[0].matrix[2] % TILE != 0
    small = 10_240 + (4096 if fp32 else 2048) + partial
    copies = 2 if ragged or len(inputs) > 1 else 1
    row = 2 * block if ragged else width
    total = row * tile_in + 2 * block * tile_out + width * partial * copies + small
    if total < chip.sram_usable_bytes * 0.95:
        return total
    kept = min(width, _SOFTMAX_WIDE)
    return kept * (tile_in + 2 * partial) + 8 * tile_out + small + 2 * 4096 + partial


def layer_norm(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """The row, its centred and squared copies, weights, and the sums."""
    x = inputs[0]
    layer = op.attr("norm") == "layer"
    partial = 4096 if op.attr("fp32_acc") or x.format == "float32" else 2048
    tile_x, tile_out = TILE_BYTES[x.format], TILE_BYTES[outputs[0].format]
    operands = dict(zip(op.attr("operands"), inputs, strict=False))
    affine = [operands[name] for name in ("weight", "bias") if name in operands]
    tile_affine = sum(TILE_BYTES[spec.format] for spec in affine)
    residual = TILE_BYTES[operands["residual"].format] if "residual" in operands else 0
    if x.memory.sharded:
        return _sharded_norm(x, layer, partial, tile_affine)
    block = 4 if partial == 4096 else 8
    width = round_up(ceil_div(x.matrix[2], TILE), block)
    copies = 2 if layer else 1
    fixed = 2 * block * tile_out + 3 * 4096 + (4096 if layer else 0)
    fixed += 8 * partial + (16_384 * 2 if affine else 0)
    fixed += (8192 if layer else 4096) if partial == 4096 else 0
    row = tile_x + residual + copies * partial + tile_affine
    if width * row + fixed < chip.sram_usable_bytes * 0.94:
        return width * row + fixed
    wide = _NORM_WIDE_AFFINE if len(affine) > 1 else _NORM_WIDE
    return min(width, wide) * (row + (0 if layer else partial)) + fixed + partial


def _sharded_norm(x: TensorSpec, layer: bool, partial: int, tile_affine: int) -> int:
    """A shard's own copies, and the sums of all cores that share its rows."""
    memory = x.memory
    assert memory.shard is not None
    assert memory.grid is not None
    height, width = ceil_div(memory.shard[0], TILE), ceil_div(memory.shard[1], TILE)
    partners = memory.grid[0]
    if memory.sharding == "width" and memory.grid[1] > 1:
        partners = memory.grid[0] + memory.grid[1] - 1  # sums are gathered in two stages
    per_row = 5 if layer else 3
    gathers = 2 if layer else 1
    return (
        4096
        + 2 * partial
        + per_row * height * partial
        + gathers * partners * partial
        + width * tile_affine
        + 2 * height * width * partial
    )


def reduce(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Tiles of input by direction (columns, rows, outer dimensions), a scaler, two results."""
    rank = max(2, len(inputs[0].shape))
    dims = [d % rank for d in op.attr("dims")] or list(range(rank))
    depth = 8 if rank - 1 in dims else 2 if rank - 2 in dims else 16
    tile = TILE_BYTES[inputs[0].format]
    scaler = 4096 if inputs[0].format == "float32" else 2048
    return depth * tile + scaler + 2 * TILE_BYTES[outputs[0].format]
