"""Records of convolutions, pools and what prepares them: everything that slides a window."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from temper.chips import Chip
from temper.program.compute_config import compute_attrs
from temper.program.conv_config import Window, choose, pool_bytes, window_of
from temper.program.op import Op, OpKind, Specs, register
from temper.program.table.matmul import matmul_buffers
from temper.program.table.shared import COMPUTE, entry_bytes, matrix, no_buffers, same_shape
from temper.program.tensor import BLOCK_FORMATS, TILE, TensorSpec, ceil_div, round_up
from temper.program.words import chain, compute_config, data_type_of

# Sliding windows work on the flat channels-last form (1, 1, N*H*W, C); these say what N, H, W are.
_WINDOW = {
    "batch": 1,
    "in_h": 1,
    "in_w": 1,
    "kernel": [1, 1],
    "stride": [1, 1],
    "padding": [0, 0, 0, 0],  # top, bottom, left, right
    "dilation": [1, 1],
}


def _conv_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    window = window_of(op)
    memory = outputs[0].memory
    if window.is_matmul:  # ttnn calls its matmul for it
        columns = TensorSpec((window.in_channels, window.out_channels), inputs[1].format)
        attrs = {"fp32_acc": op.attr("fp32_acc"), "config": None}
        same = Op("Matmul", op.inputs, op.outputs, attrs)
        return matmul_buffers(same, [inputs[0], columns, *inputs[2:]], outputs, chip)
    split = _split(window, inputs[0], outputs[0])
    if split is not None and inputs[0].memory.shard is not None:
        # Channels as the halo has them, padded ones too.
        window = replace(window, in_channels=split[1] * inputs[0].memory.shard[1])
    config = choose(
        window, inputs[0], outputs[0], chip, weight_format=inputs[1].format, bias=len(inputs) > 2,
        fp32_acc=op.attr("fp32_acc") and op.attr("packer_l1_acc"),
        act_block_h=op.attr("act_block_h") if op.kind == "Conv2d" else 0,
        sharding=memory.sharding if memory.sharded else None,
        split=split,
    )  # fmt: skip
    return config.circular_bytes


def _split(window: Window, x: TensorSpec, out: TensorSpec) -> tuple[int, int] | None:
    """Cores along rows and along channels that the halo and the result lie on."""
    if x.memory.shard is None or out.memory.shard is None:
        return None
    rows = ceil_div(window.out_rows, out.memory.shard[0])
    return rows, ceil_div(window.in_channels, x.memory.shard[1])


def _pool_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    shard = inputs[0].memory.shard
    return pool_bytes(window_of(op), shard[1] if shard else inputs[0].matrix[2])


def _halo_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Two sticks of padding, and two rows of tiles when the input must be untilized."""
    shard = outputs[0].memory.shard or (0, inputs[0].matrix[2])
    sticks = 2 * shard[1] * 2
    if inputs[0].layout != "tile":
        return sticks
    return sticks + 2 * 2 * ceil_div(shard[1], TILE) * entry_bytes(inputs[0])


def _upsample_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Two sticks; a bilinear one takes eight neighbours twice and two tiles of weights twice."""
    stick = round_up(int(inputs[0].shape[-1] * inputs[0].element_bytes), 32)
    return 2 * 8 * stick + 4 * 2048 if op.attr("mode") == "bilinear" else 2 * stick


def _upsample_inside(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Bilinear in ttnn: rows of the image, their halo and the result as height shards."""
    x, out = inputs[0], outputs[0]
    if op.attr("mode") != "bilinear" or out.memory.sharded:
        return 0
    images, height, width, channels = x.shape
    rows = images * height * width
    cores = min(rows, chip.compute_cores)
    out_rows = ceil_div(math.prod(out.shape[:3]), cores)
    stick = round_up(int(channels * x.element_bytes), chip.sram_alignment)
    return (ceil_div(rows, cores) + _bilinear_halo(x, out, out_rows) + out_rows) * stick


def _bilinear_halo(x: TensorSpec, out: TensorSpec, out_rows: int) -> int:
    """The most input positions, with a frame of one, that one shard of results looks at."""
    (_, height, width, _), (images, out_height, out_width, _) = x.shape, out.shape
    padded = width + 2
    total = images * out_height * out_width

    def first(row: int) -> int:
        image, rest = divmod(row, out_height * out_width)
        down, across = divmod(rest, out_width)
        y = ((2 * down + 1) * height - out_height) // (2 * out_height) + 1
        place = ((2 * across + 1) * width - out_width) // (2 * out_width) + 1
        return (image * (height + 2) + y) * padded + place

    starts = range(0, total, out_rows)
    return max(first(min(s + out_rows, total) - 1) - first(s) for s in starts) + padded + 2


def _conv_products(op: Op, inputs: Specs, outputs: Specs, padded: bool) -> float:
    if not outputs:
        return 0.0
    batch, rows, columns = matrix(outputs[0], padded)
    inner = math.prod(op.attr("kernel")) * op.attr("in_channels") / max(1, op.attr("groups"))
    inner = round_up(math.ceil(inner), TILE) if padded else inner
    return float(batch * rows * columns * inner)


def _fidelity(inputs: Specs) -> str:
    """HiFi4 as ttnn does, less the phases that only multiply bits that the formats do not have.

    A phase takes 5 bits of a weight and 7 of an activation (FACTS 3): bfloat8_b has 7 and 7,
    bfloat4_b 3, so HiFi2 and LoFi give the same products as HiFi4.
    """
    formats = [spec.format for spec in inputs[:2]]
    if len(formats) < 2 or any(fmt not in BLOCK_FORMATS for fmt in formats):
        return "HiFi4"
    return "HiFi2" if formats[1] == "bfloat8_b" else "LoFi"


def _conv_compute(inputs: Specs, outputs: Specs, arch: str, k: int, norm: str) -> dict[str, Any]:
    both_fp32 = all(spec.format == "float32" for spec in inputs[:2])
    return compute_attrs(_fidelity(inputs), fp32_acc=both_fp32, approx=True)


def _geometry(op: Op) -> str:
    kernel, stride, dilation = op.attr("kernel"), op.attr("stride"), op.attr("dilation")
    pads = "; ".join(str(p) for p in op.attr("padding"))
    return (
        f"SlidingWindowConfig(batch_size={op.attr('batch')}; "
        f"input_hw=({op.attr('in_h')};{op.attr('in_w')}); "
        f"window_hw=({kernel[0]};{kernel[1]}); stride_hw=({stride[0]};{stride[1]}); "
        f"padding=({pads}); dilation_hw=({dilation[0]};{dilation[1]}); )"
    )


def _conv_words(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> dict[str, Any]:
    pairs: dict[str, Any] = {
        "compute_kernel_config": compute_config(op, chip),
        "sliding_window_config": _geometry(op),
        "groups": op.attr("groups"),
        "output_channels": op.attr("out_channels"),
        "activation": chain(op.attr("activations")),
        "dtype": data_type_of(outputs),
    }
    if op.attrs.get("act_block_h"):
        rows = int(op.attrs["act_block_h"]) // 32
        pairs["block_config"] = f"OptimizedConvBlockConfig(act_block_h_ntiles={rows})"
    return pairs


def _halo_words(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> dict[str, Any]:
    return {"sliding_window_config": _geometry(op)}


def _pool_words(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> dict[str, Any]:
    function = f"Pool2DType::{str(op.attr('function')).upper()}_POOL2D"
    return {"sliding_window_config": _geometry(op), "pool_type": function}


register(
    # x (1,1,N*H*W,C); weight logical (O, C/groups, kh, kw) until prepared, then the spec is
    # (1, 1, kh*kw*C, O) in tiles while hosts may keep any form; bias (O).
    OpKind(
        "Conv2d",
        "conv2d",
        "Conv2dDeviceOperation",
        ("x", "weight", "bias?"),
        {
            **_WINDOW,
            "groups": 1,
            "in_channels": 1,
            "out_channels": 1,
            "activations": [],
            "prepared": False,
            "act_block_h": 0,
            **COMPUTE,
        },
        matrix=True,
        buffers=_conv_buffers,
        products=_conv_products,
        compute=_conv_compute,
        words=_conv_words,
        vendor_model=True,
    ),
    OpKind(
        "ConvTranspose2d",
        "conv2d",
        "ConvTranspose2dDeviceOperation",
        ("x", "weight", "bias?"),
        {
            **_WINDOW,
            "output_padding": [0, 0],
            "groups": 1,
            "in_channels": 1,
            "out_channels": 1,
            "activations": [],
            "prepared": False,
            **COMPUTE,
        },
        matrix=True,
        buffers=_conv_buffers,
        products=_conv_products,
        compute=_conv_compute,
        words=_conv_words,
        vendor_model=True,
    ),
    OpKind(
        "PrepareConvWeight",
        "conv_prepare",
        "PrepareConvWeights",
        ("weight",),
        {"groups": 1, "transposed": False},
        buffers=no_buffers,
    ),
    OpKind(
        "Pool2d",
        "pool",
        "Pool2D",
        ("x",),
        {
            **_WINDOW,
            "function": "max",
            "channels": 1,
            "ceil_mode": False,
            "count_include_pad": True,
            "divisor": None,
        },
        buffers=_pool_buffers,
        words=_pool_words,
        vendor_model=True,
    ),
    OpKind(
        "Upsample",
        "upsample",
        "UpSampleDeviceOperation",
        ("x",),  # x (N, H, W, C)
        {"scale": [1.0, 1.0], "out_size": None, "mode": "nearest", "align_corners": False},
        buffers=_upsample_buffers,
        inside=_upsample_inside,
    ),
    # values unchanged
    OpKind(
        "Halo",
        "halo",
        "HaloDeviceOperation",
        ("x",),
        {**_WINDOW},
        buffers=_halo_buffers,
        words=_halo_words,
    ),
    # The halo again, up in the bytes of the input that it was made from: makes one hole of two.
    OpKind("Move", "move", "MoveDeviceOperation", ("x",), shapes=same_shape, buffers=no_buffers),
)
