"""Matmul: the record of the op that most of the matrix engine's time goes to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from temper.chips import ARCHITECTURES, Chip
from temper.program.compute_config import compute_attrs
from temper.program.matmul_config import (
    DRAM_SHARDED,
    MULTI_CORE,
    REUSE,
    REUSE_1D,
    MatmulConfig,
    choose,
    matmul_config_of,
    matmul_shape,
)
from temper.program.op import Op, OpKind, Specs, register
from temper.program.table.shared import COMPUTE, matrix
from temper.program.tensor import BLOCK_FORMATS, TILE, TILE_BYTES, ceil_div, round_up
from temper.program.words import chain, compute_config, data_type_of, program_config

# A bfloat16 sum this long loses too much; the compiler then accumulates in float32 (FACTS 6.2).
_LARGE_K = 50_000


def _shapes(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    if len(inputs) < 2:
        return
    a, b = inputs[0].shape, inputs[1].shape
    if len(a) < 1 or len(b) < 2:
        return
    k_a = a[-2] if op.attr("transpose_a") and len(a) > 1 else a[-1]
    k_b, n = (b[-1], b[-2]) if op.attr("transpose_b") else (b[-2], b[-1])
    if k_a != k_b:
        yield f"inner sizes differ: {k_a} of {list(a)} and {k_b} of {list(b)}"
    if outputs[0].shape and outputs[0].shape[-1] != n:
        yield f"the result is {outputs[0].shape[-1]} wide, not {n}"


def matmul_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Blocks of both operands, of the result and of partial sums, by the program config."""
    return sum(matmul_buffer_parts(op, inputs, outputs, chip).values())


def matmul_buffer_parts(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> dict[str, int]:
    """Bytes of each circular buffer; one that lies on a shard has none of its own."""
    a, b, out = inputs[0], inputs[1], outputs[0]
    config = matmul_config_of(op, inputs, outputs, chip)
    tile_a, tile_b, tile_out = (TILE_BYTES[spec.format] for spec in (a, b, out))
    if config.name == MULTI_CORE:
        return {"in0": 2 * tile_a, "in1": 2 * tile_b, "out": 2 * tile_out}
    batch, _, k, n = matmul_shape(op, inputs)
    if config.name == DRAM_SHARDED:
        # The cores beside a bank hold three blocks of its columns, and their sums.
        columns = ceil_div(ceil_div(n, TILE), chip.dram_banks)
        depth = config.in0_block_w
        return {
            "in0": depth * 2 * tile_a, "in1": depth * 3 * columns * tile_b,
            "out": columns * tile_out,
            "partial sums": columns * (4096 if op.attr("fp32_acc") else 2048),
        }  # fmt: skip
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
    partial = 4096 if op.attr("fp32_acc") else max(2048, tile_out)
    return {
        "in0": 0 if in0_lies_on_shard and config.name in (REUSE_1D, REUSE) else in0,
        "in1": in1,
        "bias": width * TILE_BYTES[inputs[2].format] if len(inputs) > 2 else 0,
        "out": 0 if out.memory.sharded else height * width * tile_out,
        "partial sums": height * width * partial if partial != tile_out else 0,
    }


def matmul_configs(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> list[MatmulConfig]:
    """Program configs that a matmul of interleaved tensors may be given: ttnn's own choice and a
    multicast over the whole grid, each with deeper blocks where their buffers fit SRAM."""
    batch, m, k, n = matmul_shape(op, inputs)
    found = []
    for grid in (None, chip.grid):
        base = choose(
            batch, m, k, n, inputs[0], inputs[1], outputs[0], chip,
            fp32_acc=bool(op.attrs.get("fp32_acc")), core_grid=grid,
        )  # fmt: skip
        depth = ceil_div(k, TILE)
        deeper = [base] if base.name == MULTI_CORE else [
            replace(base, in0_block_w=block) for block in (base.in0_block_w, 1, 2, 4, 8, 16)
            if depth % block == 0
        ]  # fmt: skip
        for config in deeper:
            like = replace(op, attrs={**op.attrs, "config": config.to_attrs()})
            if matmul_buffers(like, inputs, outputs, chip) <= chip.sram_usable_bytes:
                found.append(config)
    return found


def _products(op: Op, inputs: Specs, outputs: Specs, padded: bool) -> float:
    if len(inputs) < 2 or not outputs:
        return 0.0
    batch, rows, columns = matrix(outputs[0], padded)
    a = inputs[0].matrix
    inner = a[1] if op.attr("transpose_a") else a[2]
    return float(batch * rows * columns * (round_up(inner, TILE) if padded else inner))


def _compute(inputs: Specs, outputs: Specs, arch: str, k: int, norm: str) -> dict[str, Any]:
    formats = [spec.format for spec in inputs[:2]]
    fp32_out = bool(outputs) and outputs[0].format == "float32"
    if all(fmt == "float32" for fmt in formats):
        fidelity = ARCHITECTURES[arch].exact_fidelity
    elif all(fmt in BLOCK_FORMATS for fmt in formats):
        fidelity = "LoFi"
    else:
        fidelity = "HiFi2"
    if k > _LARGE_K:
        return compute_attrs(fidelity, fp32_acc=True, packer_l1_acc=True)
    return compute_attrs(fidelity, fp32_acc=fp32_out, packer_l1_acc=not fp32_out)


def _words(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> dict[str, Any]:
    pairs: dict[str, Any] = {
        "bcast_batch": inputs[1].matrix[0] == 1 if len(inputs) > 1 else True,
        "compute_kernel_config": compute_config(op, chip),
        "output_dtype": data_type_of(outputs),
        "transpose_a": op.attr("transpose_a"),
        "transpose_b": op.attr("transpose_b"),
        "user_fused_activation": chain(op.attr("activations")),
    }
    config = op.attr("config")
    if isinstance(config, Mapping) and config.get("name"):
        pairs["program_config"] = program_config(config)
    return pairs


register(
    # a (..., M, K) x b (..., K, N) + bias (N); activations applied before the one rounding.
    # config: None, or the ttnn program config as a mapping with "name" (class name without the
    # "ProgramConfig" suffix) and its numbers: grid [x, y], in0_block_w, out_subblock_h/w,
    # out_block_h/w, per_core_m, per_core_n, mcast_in0, fuse_batch.
    OpKind(
        "Matmul",
        "matmul",
        "MatmulDeviceOperation",
        ("a", "b", "bias?"),
        {"transpose_a": False, "transpose_b": False, "activations": [], "config": None, **COMPUTE},
        matrix=True,
        shapes=_shapes,
        buffers=matmul_buffers,
        products=_products,
        compute=_compute,
        words=_words,
        vendor_model=True,
    ),
)
