"""Records of convolutions, pools and what prepares them: everything that slides a window."""

from __future__ import annotations

import math
from typing import Any

from temper.chips import Chip
from temper.program.compute_config import compute_attrs
from temper.program.conv_config import POOL_BYTES, choose, window_of
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
    config = choose(
        window, inputs[0], outputs[0], chip, weight_format=inputs[1].format, bias=len(inputs) > 2,
        fp32_acc=op.attr("fp32_acc"),
        act_block_h=op.attr("act_block_h") if op.kind == "Conv2d" else 0,
        sharding=memory.sharding if memory.sharded else None,
    )  # fmt: skip
    return config.circular_bytes


def _pool_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    return POOL_BYTES


def _halo_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Two sticks of padding, and two rows of tiles when the input must be untilized."""
    shard = outputs[0].memory.shard or (0, inputs[0].matrix[2])
    sticks = 2 * shard[1] * 2
    if inputs[0].layout != "tile":
        return sticks
    return sticks + 2 * 2 * ceil_div(shard[1], TILE) * entry_bytes(inputs[0])


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
