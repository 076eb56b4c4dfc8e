"""Records of the ops that scale rows by their own statistics: softmax and the norms."""

from __future__ import annotations

from typing import Any

from temper.chips import Chip
from temper.program.compute_config import compute_attrs
from temper.program.group_norm_config import group_norm_buffers
from temper.program.op import Op, OpKind, Specs, register
from temper.program.table.shared import COMPUTE, same_shape
from temper.program.tensor import TILE, TILE_BYTES, TensorSpec, ceil_div, round_up

# Rows of tiles that the wide variants of softmax and the norms keep at a time (read off ttnn).
_SOFTMAX_WIDE = 80
_NORM_WIDE = 56
_NORM_WIDE_FP32 = 28


def _softmax_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
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


def _softmax_compute(inputs: Specs, outputs: Specs, arch: str, k: int, norm: str) -> dict[str, Any]:
    return compute_attrs("HiFi4", approx=True)


def _layer_norm_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
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
    row = tile_x + copies * partial + tile_affine
    if residual:  # both operands pass in blocks; their sum is what the row keeps
        fixed += 2 * block * (tile_x + residual)
        row += partial - tile_x
    if width * row + fixed < chip.sram_usable_bytes * 0.94:
        return width * row + fixed
    wide = _NORM_WIDE_FP32 if partial == 4096 and affine else _NORM_WIDE
    copied = 0 if layer or residual else partial
    return min(width, wide) * (row + copied) + fixed + partial


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


def _group_norm_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    return group_norm_buffers(inputs[0], op.attr("groups"), len(inputs) - 1, chip)


def _batch_norm_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Two tiles of every operand and result, and one of each between them."""
    return 3 * sum(TILE_BYTES[spec.format] for spec in (*inputs, *outputs))


def _layer_norm_compute(
    inputs: Specs, outputs: Specs, arch: str, k: int, norm: str
) -> dict[str, Any]:
    """ttnn 0.81 sums a layer norm in float32, an rms norm not (seen in its buffers)."""
    return compute_attrs("HiFi4", fp32_acc=norm == "layer")


register(
    OpKind(
        "Softmax",
        "softmax",
        "SoftmaxDeviceOperation",
        ("x", "mask?"),
        {"dim": -1, "scale": None, "numeric_stable": True, **COMPUTE},
        shapes=same_shape,
        buffers=_softmax_buffers,
        compute=_softmax_compute,
        vendor_model=True,
    ),
    # norm: layer | rms, over the last dimension; residual is added to x first.
    OpKind(
        "LayerNorm",
        "layernorm",
        "LayerNormDeviceOperation",
        ("x", "weight?", "bias?", "residual?"),
        {"norm": "layer", "eps": 1e-5, "operands": ["x"], "activations": [], **COMPUTE},
        buffers=_layer_norm_buffers,
        compute=_layer_norm_compute,
    ),
    # x (N, 1, H*W, C)
    OpKind(
        "GroupNorm",
        "groupnorm",
        "GroupNormDeviceOperation",
        ("x", "weight?", "bias?"),
        {"groups": 1, "eps": 1e-5, "operands": ["x"], **COMPUTE},
        buffers=_group_norm_buffers,
    ),
    # x (N, C, H, W)
    OpKind(
        "BatchNorm",
        "batchnorm",
        "BatchNormOperation",
        ("x", "mean", "var", "weight?", "bias?"),
        {"eps": 1e-5, "operands": ["x", "mean", "var"], **COMPUTE},
        buffers=_batch_norm_buffers,
    ),
)
