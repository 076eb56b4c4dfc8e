"""Convolutions and pools: one ttnn call stands for interleaved-to-sharded, halo and the window."""

from __future__ import annotations

from typing import Any

from temper.program import Op
from temper.targets.ttnn.expressions import DEVICE, Make, Name, Ref, dtype, layout, memory_config
from temper.targets.ttnn.table import OpRow, call, chain, compute_config, refused


def conv_config(row: OpRow) -> Make:
    """How the window is spread over the cores; a halo is moved where the program says so."""
    activations = chain(row, row.attr("activations"))
    if len(activations) > 1:
        raise refused(row, "it fuses one activation, not a chain")
    kwargs: dict[str, Any] = {
        "weights_dtype": dtype(row.inputs[1].format),
        "activation": activations[0] if activations else None,
        "deallocate_activation": row.last,
        "reallocate_halo_output": "Move" in row.inside,
        "reshard_if_not_optimal": "Reshard" in row.inside,
        "output_layout": layout(row.out.layout),
    }
    if row.out.memory.sharded:
        kwargs["shard_layout"] = _scheme(row)
    if row.op.kind == "Conv2d" and row.attr("act_block_h"):
        kwargs["act_block_h_override"] = row.attr("act_block_h")
    if row.op.kind == "Conv2d" and list(row.attr("kernel")) == list(row.attr("stride")) != [1, 1]:
        # Else ttnn folds patches into channels, and wants the weights folded too.
        kwargs["enable_kernel_stride_folding"] = False
    return Make("ttnn.Conv2dConfig", kwargs=kwargs)


def _scheme(row: OpRow) -> Name:
    return Name(f"ttnn.TensorMemoryLayout.{row.out.memory.sharding.upper()}_SHARDED")


def _geometry(row: OpRow) -> dict[str, Any]:
    made = {
        "in_channels": row.attr("in_channels"), "out_channels": row.attr("out_channels"),
        "batch_size": row.attr("batch"), "input_height": row.attr("in_h"),
        "input_width": row.attr("in_w"), "kernel_size": list(row.attr("kernel")),
        "stride": list(row.attr("stride")), "padding": list(row.attr("padding")),
        "dilation": list(row.attr("dilation")), "groups": row.attr("groups"),
    }  # fmt: skip
    if row.op.kind == "ConvTranspose2d":
        made["output_padding"] = list(row.attr("output_padding"))
    return made


@call("Conv2d", "ConvTranspose2d")
def convolution(row: OpRow) -> Make:
    """``ttnn.conv2d`` and its arguments."""
    kwargs: dict[str, Any] = {
        "input_tensor": row.ref(0), "weight_tensor": row.ref(1), "device": DEVICE,
        **_geometry(row), "dtype": dtype(row.out.format), "conv_config": conv_config(row),
        "compute_config": compute_config(row), "memory_config": row.memory,
    }  # fmt: skip
    if len(row.names) > 2:
        kwargs["bias_tensor"] = row.ref(2)
    if row.op.kind == "ConvTranspose2d":
        kwargs["dram_slice_config"] = Name("ttnn.Conv2dL1FullSliceConfig")
        return Make("ttnn.conv_transpose2d", (), kwargs)
    kwargs["slice_config"] = Name("ttnn.Conv2dL1FullSliceConfig")
    return Make("ttnn.conv2d", (), kwargs)


@call("Pool2d")
def pool(row: OpRow) -> Make:
    """Max or average pooling and its arguments."""
    kwargs: dict[str, Any] = {
        "input_tensor": row.ref(0), "batch_size": row.attr("batch"), "input_h": row.attr("in_h"),
        "input_w": row.attr("in_w"), "channels": row.attr("channels"),
        "kernel_size": list(row.attr("kernel")), "stride": list(row.attr("stride")),
        "padding": list(row.attr("padding")), "ceil_mode": bool(row.attr("ceil_mode")),
        "memory_config": row.memory, "dtype": dtype(row.out.format),
        "output_layout": layout(row.out.layout), "reallocate_halo_output": "Move" in row.inside,
        "deallocate_input": row.last,
    }  # fmt: skip
    if row.out.memory.sharded and not row.inputs[0].memory.sharded:
        kwargs["applied_shard_scheme"] = _scheme(row)
    if row.attr("function") == "max":
        return Make("ttnn.max_pool2d", (), {**kwargs, "dilation": list(row.attr("dilation"))})
    kwargs["count_include_pad"] = bool(row.attr("count_include_pad"))
    if row.attr("divisor") is not None:
        kwargs["divisor_override"] = row.attr("divisor")
    return Make("ttnn.avg_pool2d", (), kwargs)


@call("Upsample")
def upsample(row: OpRow) -> Make:
    """``ttnn.upsample`` and its arguments."""
    scale = [int(s) if float(s).is_integer() else float(s) for s in row.attr("scale")]
    kwargs = {"mode": row.attr("mode"), "memory_config": row.memory}
    return Make("ttnn.upsample", (row.ref(0), scale), kwargs)


def prepare_weight(row: OpRow, weight: Make | Ref) -> Make:
    """ttnn's own preparation of a convolution's weight, from the host's raw one."""
    transposed = row.op.kind == "ConvTranspose2d"
    function = "prepare_conv_transpose2d_weights" if transposed else "prepare_conv_weights"
    kwargs = _preparation(row)
    kwargs |= {"weight_tensor": weight, "weights_format": "IOHW" if transposed else "OIHW",
               "has_bias": len(row.names) > 2}  # fmt: skip
    return Make(f"ttnn.{function}", (), kwargs)


def prepare_bias(row: OpRow, bias: str) -> Make:
    """ttnn's own preparation of a convolution's bias."""
    transposed = row.op.kind == "ConvTranspose2d"
    function = "prepare_conv_transpose2d_bias" if transposed else "prepare_conv_bias"
    return Make(f"ttnn.{function}", (), {"bias_tensor": Ref(bias), **_preparation(row)})


def _preparation(row: OpRow) -> dict[str, Any]:
    x = row.inputs[0]
    kwargs: dict[str, Any] = {
        "input_memory_config": memory_config(x), "input_layout": layout(x.layout),
        **_geometry(row), "device": DEVICE, "input_dtype": dtype(x.format),
        "output_dtype": dtype(row.out.format), "conv_config": conv_config(row),
        "compute_config": compute_config(row),
    }  # fmt: skip
    kwargs.pop("output_padding", None)
    if row.op.kind == "Conv2d":
        kwargs["slice_config"] = Name("ttnn.Conv2dL1FullSliceConfig")
    return kwargs


def raw_weight_shape(op: Op) -> tuple[int, int, int, int]:
    """The logical weight that ttnn prepares."""
    kh, kw = op.attr("kernel")
    inside, outside, groups = op.attr("in_channels"), op.attr("out_channels"), op.attr("groups")
    if op.kind == "ConvTranspose2d":
        return inside, outside // groups, kh, kw
    return outside, inside // groups, kh, kw
