"""Attributes of ops in the words of tt-metal's profiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temper.chips import Chip
from temper.program.op import Op, Specs
from temper.program.tensor import Memory, TensorSpec

SHARDING = {
    "interleaved": "INTERLEAVED",
    "height": "HEIGHT_SHARDED",
    "width": "WIDTH_SHARDED",
    "block": "BLOCK_SHARDED",
}
BUFFER = {"dram": "DRAM", "sram": "L1"}


def datatype(spec: TensorSpec) -> str:
    """A format in the profiler's words."""
    return spec.format.upper()


def data_type_of(specs: Specs) -> str:
    """``DataType::BFLOAT16`` of the first tensor, nothing without one."""
    return f"DataType::{datatype(specs[0])}" if specs else ""


def op_attributes(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> str:
    """``{'name': 'value'; …}`` with ';' for ',' as tt-metal writes it."""
    pairs = (op.info.words or plain)(op, inputs, outputs, chip)
    if outputs and op.kind != "Host" and "memory_config" not in pairs:
        pairs.setdefault("output_mem_config", memory_config(outputs[0].memory))
    text = "; ".join(f"'{name}': '{_value(value)}'" for name, value in sorted(pairs.items()))
    return ("{" + text + "}").replace(",", ";")


def memory_config(mem: Memory) -> str:
    """Where a tensor lies, in the profiler's words."""
    shard = "std::nullopt"
    if mem.grid and mem.shard:
        x, y = mem.grid[0] - 1, mem.grid[1] - 1
        shard = (
            f"ShardSpec(grid={{[(x=0;y=0) - (x={x};y={y})]}};"
            f"shape={{{mem.shard[0]}; {mem.shard[1]}}};orientation=ShardOrientation::ROW_MAJOR)"
        )
    buffer = BUFFER.get(mem.buffer, "SYSTEM_MEMORY")
    return (
        f"MemoryConfig(memory_layout=TensorMemoryLayout::{SHARDING[mem.sharding]};"
        f"buffer_type=BufferType::{buffer};shard_spec={shard};"
        "nd_shard_spec=std::nullopt;created_with_nd_shard_spec=0)"
    )


def compute_config(op: Op, chip: Chip) -> str:
    """Fidelity and accumulation, in the profiler's words."""
    return (
        f"{chip.architecture.title}ComputeKernelConfig(math_fidelity={op.attr('fidelity')};"
        f"math_approx_mode={int(bool(op.attr('approx')))};"
        f"fp32_dest_acc_en={int(bool(op.attr('fp32_acc')))};"
        f"packer_l1_acc={int(bool(op.attr('packer_l1_acc')))};dst_full_sync_en=0)"
    )


def program_config(config: Mapping[str, Any]) -> str:
    """A kernel's configuration, in the profiler's words."""
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


def plain(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> dict[str, Any]:
    """The attributes that were set, those of the compute kernel gathered into one."""
    compute = {"fidelity", "fp32_acc", "packer_l1_acc", "approx"}
    pairs = {k: v for k, v in op.attrs.items() if k not in compute}
    config = pairs.pop("config", None)
    if config:
        pairs["program_config"] = program_config(config)
    if "fidelity" in op.info.attrs:
        pairs["compute_kernel_config"] = compute_config(op, chip)
    return pairs


def chain(functions: Any) -> str:
    """A chain of fused functions as ttnn prints unary ops with parameters."""
    names = []
    for item in functions or ():
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
