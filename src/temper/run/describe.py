"""Tensors and op attributes in the words of tt-metal's profiler."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from temper.program import Memory, TensorSpec
from temper.run.opinfo import OpInfo

_SHARDING = {
    "interleaved": "INTERLEAVED",
    "height": "HEIGHT_SHARDED",
    "width": "WIDTH_SHARDED",
    "block": "BLOCK_SHARDED",
}
_BUFFER = {"dram": "DRAM", "sram": "L1"}
# Current tt-metal opens even one chip as a mesh device, whose number in this column is 1.
_DEVICE = "DEV_1"


def dims4(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """W, Z, Y, X: outer dimensions collapsed into W, missing ones 1."""
    padded = (1,) * (4 - len(shape)) + tuple(shape)
    return math.prod(padded[: len(padded) - 3]), padded[-3], padded[-2], padded[-1]


def datatype(spec: TensorSpec) -> str:
    return spec.format.upper()


def layout(spec: TensorSpec) -> str:
    return "TILE" if spec.layout == "tile" else "ROW_MAJOR"


def memory(spec: TensorSpec) -> str:
    if spec.memory.buffer == "host":
        return "HOST"
    return f"{_DEVICE}_{_BUFFER[spec.memory.buffer]}_{_SHARDING[spec.memory.sharding]}"


def shape(spec: TensorSpec) -> str:
    return "x".join(str(n) for n in spec.shape) or "scalar"


def formats(info: OpInfo) -> str:
    """``BFLOAT16 x BFLOAT8_B => BFLOAT16``."""
    inputs = " x ".join(datatype(spec) for spec in info.inputs[:2])
    outputs = datatype(info.outputs[0]) if info.outputs else ""
    return f"{inputs} => {outputs}"


def location(info: OpInfo) -> str:
    """MLIR's form, as ttrt writes it: the user's line, then the name."""
    source = info.op.source
    if not source.file:
        return f'loc("{info.name}")'
    return f'loc(fused["{source.file}":{source.line}:0, "{info.name}"])'


def attributes(info: OpInfo) -> str:
    """``{'name': 'value'; …}`` with ';' for ',' as tt-metal writes it."""
    pairs = _ATTRIBUTES.get(info.op.kind, _plain)(info)
    if info.outputs and info.op.kind != "Host":
        pairs.setdefault("output_mem_config", _memory_config(info.outputs[0].memory))
    text = "; ".join(f"'{name}': '{_value(value)}'" for name, value in sorted(pairs.items()))
    return ("{" + text + "}").replace(",", ";")


def _memory_config(mem: Memory) -> str:
    shard = "std::nullopt"
    if mem.grid and mem.shard:
        x, y = mem.grid[0] - 1, mem.grid[1] - 1
        shard = (
            f"ShardSpec(grid={{[(x=0;y=0) - (x={x};y={y})]}};"
            f"shape={{{mem.shard[0]}; {mem.shard[1]}}};orientation=ShardOrientation::ROW_MAJOR)"
        )
    buffer = _BUFFER.get(mem.buffer, "SYSTEM_MEMORY")
    return (
        f"MemoryConfig(memory_layout=TensorMemoryLayout::{_SHARDING[mem.sharding]};"
        f"buffer_type=BufferType::{buffer};shard_spec={shard})"
    )


def _compute_config(info: OpInfo) -> str:
    name = {"grayskull": "Grayskull", "blackhole": "Blackhole"}.get(info.chip.arch, "Wormhole")
    op = info.op
    return (
        f"{name}ComputeKernelConfig(math_fidelity={info.fidelity};"
        f"math_approx_mode={int(bool(op.attr('approx')))};"
        f"fp32_dest_acc_en={int(bool(op.attr('fp32_acc')))};"
        f"packer_l1_acc={int(bool(op.attr('packer_l1_acc')))};dst_full_sync_en=0)"
    )


def _matmul(info: OpInfo) -> dict[str, Any]:
    op = info.op
    pairs: dict[str, Any] = {
        "bcast_batch": info.inputs[1].matrix[0] == 1 if len(info.inputs) > 1 else True,
        "compute_kernel_config": _compute_config(info),
        "output_dtype": f"DataType::{datatype(info.outputs[0])}" if info.outputs else "",
        "transpose_a": op.attr("transpose_a"),
        "transpose_b": op.attr("transpose_b"),
        "user_fused_activation": _chain(op.attr("activations")),
    }
    config = op.attr("config")
    if isinstance(config, Mapping) and config.get("name"):
        pairs["program_config"] = _program_config(config)
    return pairs


def _program_config(config: Mapping[str, Any]) -> str:
    name = f"{config['name']}ProgramConfig"
    parts = []
    grid = config.get("grid")
    if grid:
        parts.append(f"compute_with_storage_grid_size=(x={grid[0]};y={grid[1]})")
    names = (
        "in0_block_w", "out_subblock_h", "out_subblock_w", "out_block_h", "out_block_w",
        "per_core_M", "per_core_N", "q_chunk_size", "k_chunk_size",
    )  # fmt: skip
    for key in names:
        if key.lower() in config:
            parts.append(f"{key}={config[key.lower()]}")
    parts += [f"{key}={int(config[key])}" for key in ("fuse_batch", "mcast_in0") if key in config]
    return f"{name}({';'.join(parts)})"


def _window(info: OpInfo) -> str:
    op = info.op
    kernel, stride, dilation = op.attr("kernel"), op.attr("stride"), op.attr("dilation")
    padding = op.attr("padding")
    pads = "; ".join(str(p) for p in padding)
    return (
        f"SlidingWindowConfig(batch_size={op.attr('batch')}; "
        f"input_hw=({op.attr('in_h')};{op.attr('in_w')}); "
        f"window_hw=({kernel[0]};{kernel[1]}); stride_hw=({stride[0]};{stride[1]}); "
        f"padding=({pads}); dilation_hw=({dilation[0]};{dilation[1]}); )"
    )


def _conv(info: OpInfo) -> dict[str, Any]:
    op = info.op
    pairs: dict[str, Any] = {
        "compute_kernel_config": _compute_config(info),
        "sliding_window_config": _window(info),
        "groups": op.attr("groups"),
        "output_channels": op.attr("out_channels"),
        "activation": _chain(op.attr("activations")),
        "dtype": f"DataType::{datatype(info.outputs[0])}" if info.outputs else "",
    }
    if op.attrs.get("act_block_h"):
        rows = int(op.attrs["act_block_h"]) // 32
        pairs["block_config"] = f"OptimizedConvBlockConfig(act_block_h_ntiles={rows})"
    return pairs


def _sliding(info: OpInfo) -> dict[str, Any]:
    pairs: dict[str, Any] = {"sliding_window_config": _window(info)}
    if info.op.kind == "Pool2d":
        pairs["pool_type"] = f"Pool2DType::{str(info.op.attr('function')).upper()}_POOL2D"
    return pairs


def _binary(info: OpInfo) -> dict[str, Any]:
    op = info.op
    fp32 = any(spec.format in ("float32", "int32", "uint32") for spec in info.inputs)
    return {
        "binary_op_type": f"BinaryOpType::{str(op.attr('function')).upper()}",
        "compute_kernel_config": "std::nullopt",
        "dtype": f"DataType::{datatype(info.outputs[0])}" if info.outputs else "",
        "input_dtype": f"DataType::{datatype(info.inputs[0])}" if info.inputs else "",
        "is_sfpu": fp32,
        "lhs_activations": _chain(op.attr("lhs")),
        "rhs_activations": _chain(op.attr("rhs")),
        "post_activations": _chain(op.attr("post")),
        "scalar": "std::nullopt" if op.attr("scalar") is None else op.attr("scalar"),
    }


def _unary(info: OpInfo) -> dict[str, Any]:
    return {
        "op_chain": _chain(info.op.attr("functions")),
        "output_dtype": f"DataType::{datatype(info.outputs[0])}" if info.outputs else "",
    }


def _plain(info: OpInfo) -> dict[str, Any]:
    compute = {"fidelity", "fp32_acc", "packer_l1_acc", "approx"}
    pairs = {k: v for k, v in info.op.attrs.items() if k not in compute}
    config = pairs.pop("config", None)
    if config:
        pairs["program_config"] = _program_config(config)
    if info.fidelity:
        pairs["compute_kernel_config"] = _compute_config(info)
    return pairs


_ATTRIBUTES = {
    "Matmul": _matmul,
    "Conv2d": _conv,
    "ConvTranspose2d": _conv,
    "Pool2d": _sliding,
    "Halo": _sliding,
    "BinaryNg": _binary,
    "Unary": _unary,
}


def _chain(chain: Any) -> str:
    """A chain of fused functions as ttnn prints unary ops with parameters."""
    names = []
    for item in chain or ():
        name, *params = item if isinstance(item, (list, tuple)) else (item,)
        shown = "; ".join(str(p) for p in params)
        names.append(f"UnaryWithParam(op_type=UnaryOpType::{str(name).upper()};param={{{shown}}})")
    return f"SmallVector([{'; '.join(names)}])"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "std::nullopt"
    return str(value).replace("'", '"').replace("\n", " ")
