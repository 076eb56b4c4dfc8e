"""Matmul, attention, norms, softmax and reductions."""

from __future__ import annotations

from typing import Any

from temper.program.group_norm_config import group_norm_blocks, group_norm_grid
from temper.program.matmul_config import (
    DRAM_SHARDED,
    MULTI_CORE,
    REUSE,
    REUSE_1D,
    MatmulConfig,
    matmul_config_of,
)
from temper.program.tensor import TILE, ceil_div, round_up
from temper.targets.ttnn.expressions import Make, coordinate, dtype
from temper.targets.ttnn.table import OpRow, call, chain, compute_config, refused


@call("Matmul")
def matmul(row: OpRow) -> Make:
    """``linear``, with the config that placement chose."""
    kwargs: dict[str, Any] = {
        "transpose_a": bool(row.attr("transpose_a")),
        "transpose_b": bool(row.attr("transpose_b")),
        "memory_config": row.memory,
        "dtype": dtype(row.out.format),
        "compute_kernel_config": compute_config(row),
    }
    if len(row.names) > 2:
        kwargs["bias"] = row.ref(2)
    config = matmul_config_of(row.op, row.inputs, row.outputs, row.chip)
    activations = chain(row, row.attr("activations"))
    if len(activations) > 1:
        raise refused(row, "it fuses one activation, not a chain")
    program = program_config(row, config, activations)
    if program is not None:
        kwargs["program_config"] = program
    elif activations:
        kwargs["activation"] = activations[0]
    return Make("ttnn.linear" if "bias" in kwargs else "ttnn.matmul",
                (row.ref(0), row.ref(1)), kwargs)  # fmt: skip


def program_config(row: OpRow, config: MatmulConfig, activations: list[Make]) -> Make | None:
    """The program config object; None for the simplest program, which ttnn picks by itself."""
    if config.name == MULTI_CORE:
        return None
    if config.name == DRAM_SHARDED:
        return Make(f"ttnn.{config.name}ProgramConfig", kwargs={
            "in0_block_w": config.in0_block_w, "per_core_M": config.per_core_m,
            "per_core_N": config.per_core_n,
            "fused_activation": activations[0] if activations else None,
        })  # fmt: skip
    kwargs: dict[str, Any] = {
        "compute_with_storage_grid_size": coordinate(*config.grid),
        "in0_block_w": config.in0_block_w,
        "out_subblock_h": config.out_subblock_h,
        "out_subblock_w": config.out_subblock_w,
        "per_core_M": config.per_core_m,
        "per_core_N": config.per_core_n,
    }
    if config.name != REUSE:
        kwargs["out_block_h"] = config.out_block_h
        kwargs["out_block_w"] = config.out_block_w
        kwargs["fused_activation"] = activations[0] if activations else None
        kwargs["fuse_batch"] = config.fuse_batch
        if config.name == REUSE_1D:
            kwargs["mcast_in0"] = config.mcast_in0
        else:
            kwargs["transpose_mcast"] = False
    elif activations:
        raise refused(row, "the batched program has no fused activation")
    return Make(f"ttnn.{config.name}ProgramConfig", kwargs=kwargs)


@call("Sdpa")
def attention(row: OpRow) -> Make:
    """Attention and its arguments."""
    kwargs: dict[str, Any] = {
        "is_causal": bool(row.attr("causal")),
        "memory_config": row.memory,
        "compute_kernel_config": compute_config(row),
    }
    if row.attr("scale") is not None:
        kwargs["scale"] = float(row.attr("scale"))
    if len(row.names) > 3:
        kwargs["attn_mask"] = row.ref(3)
    config = row.attr("config")
    if config:
        kwargs["program_config"] = Make(
            "ttnn.SDPAProgramConfig",
            kwargs={
                "compute_with_storage_grid_size": coordinate(*config["grid"]),
                "q_chunk_size": config["q_chunk_size"],
                "k_chunk_size": config["k_chunk_size"],
            },
        )
    return Make(
        "ttnn.transformer.scaled_dot_product_attention",
        (row.ref(0), row.ref(1), row.ref(2)),
        kwargs,
    )


@call("Softmax")
def softmax(row: OpRow) -> Make:
    """``ttnn.softmax``, scaled and masked where it is."""
    if len(row.names) > 1 or row.attr("scale") is not None:
        raise refused(row, "scale and mask go into attention")
    return Make("ttnn.softmax", (row.ref(0),), {
        "dim": row.attr("dim"), "memory_config": row.memory,
        "numeric_stable": bool(row.attr("numeric_stable")),
        "compute_kernel_config": compute_config(row),
    })  # fmt: skip


@call("LayerNorm")
def layer_norm(row: OpRow) -> Make:
    """Layer or RMS norm with its residual."""
    named = {"x": "input", "weight": "weight", "bias": "bias", "residual": "residual_input_tensor"}
    operands = dict(zip(row.attr("operands"), range(len(row.names)), strict=True))
    kwargs: dict[str, Any] = {
        named[name]: row.ref(index) for name, index in operands.items() if name != "x"
    }
    kwargs |= {
        "epsilon": float(row.attr("eps")),
        "memory_config": row.memory,
        "compute_kernel_config": compute_config(row),
    }
    x = row.inputs[0]
    if x.memory.sharded:
        kwargs["program_config"] = _norm_config(row)
    if row.attr("activations"):
        kwargs["activation"] = chain(row, row.attr("activations"))[0]
    function = "ttnn.rms_norm" if row.attr("norm") == "rms" else "ttnn.layer_norm"
    return Make(function, (row.ref(0),), kwargs)


def _norm_config(row: OpRow) -> Make:
    memory = row.inputs[0].memory
    assert memory.grid is not None
    assert memory.shard is not None
    block_h, block_w = ceil_div(memory.shard[0], TILE), ceil_div(memory.shard[1], TILE)
    most = 4 if row.attr("fp32_acc") else 8
    return Make("ttnn.LayerNormShardedMultiCoreProgramConfig", kwargs={
        "compute_with_storage_grid_size": coordinate(*memory.grid),
        "subblock_w": max(d for d in range(1, most + 1) if block_w % d == 0),
        "block_h": block_h, "block_w": block_w, "inplace": False,
    })  # fmt: skip


@call("BatchNorm")
def batch_norm(row: OpRow) -> Make:
    """``ttnn.batch_norm`` and its arguments."""
    named = {"mean": "running_mean", "var": "running_var", "weight": "weight", "bias": "bias"}
    kwargs: dict[str, Any] = {
        named[name]: row.ref(index)
        for index, name in enumerate(row.attr("operands"))
        if name != "x"
    }
    kwargs |= {"eps": float(row.attr("eps")), "training": False, "memory_config": row.memory,
               "compute_kernel_config": compute_config(row)}  # fmt: skip
    return Make("ttnn.batch_norm", (row.ref(0),), kwargs)


@call("GroupNorm")
def group_norm(row: OpRow) -> Make:
    """ttnn wants weight and bias as rows of a tile's width and a mask of its groups: the plan
    makes them beside the constants."""
    named = {"weight": "weight", "bias": "bias"}
    kwargs: dict[str, Any] = {
        named[name]: row.ref(index)
        for index, name in enumerate(row.attr("operands"))
        if name != "x"
    }
    grid = group_norm_grid(row.inputs[0], row.attr("groups"), row.chip)
    kwargs |= {
        "num_groups": row.attr("groups"), "epsilon": float(row.attr("eps")), "inplace": False,
        "core_grid": Make("ttnn.CoreGrid", kwargs={"y": grid[1], "x": grid[0]}),
        "memory_config": row.memory, "compute_kernel_config": compute_config(row),
        "num_out_blocks": group_norm_blocks(row.inputs[0]),
    }  # fmt: skip
    return Make("ttnn.group_norm", (row.ref(0),), kwargs)


_REDUCTIONS = {"sum", "mean", "max", "min", "prod", "var", "std"}


@call("Reduce")
def reduce(row: OpRow) -> Make:
    """The reduction by ttnn's name."""
    function = row.attr("function")
    if function not in _REDUCTIONS:
        raise refused(row, f"no reduction {function!r}")
    half = next((op for op in row.program.ops if row.op.inputs[0] in op.outputs), None)
    first = half.attr("dims") if half and half.kind == "Reduce" and half.attr("inner") else []
    dims = sorted(int(d) for d in (*first, *row.attr("dims")))
    kwargs: dict[str, Any] = {"keepdim": bool(row.attr("keepdim")), "memory_config": row.memory}
    if function == "prod":
        if len(dims) != 1:
            raise refused(row, "a product over several dimensions")
        return Make("ttnn.prod", (row.ref(0),), {"dim": dims[0], **kwargs})
    kwargs["compute_kernel_config"] = compute_config(row)
    if function in ("var", "std"):
        kwargs["correction"] = bool(row.attr("correction"))
    dim: Any = dims[0] if len(dims) == 1 else dims
    if not dims or len(dims) == len(row.inputs[0].shape):
        return Make(f"ttnn.{function}", (row.ref(0),), {**kwargs, "dim": None})
    return Make(f"ttnn.{function}", (row.ref(0),), {"dim": dim, **kwargs})


@call("CumSum")
def cumsum(row: OpRow) -> Make:
    """``ttnn.cumsum`` and its arguments."""
    return Make("ttnn.cumsum", (row.ref(0),), {"dim": row.attr("dim")})


@call("ArgMax")
def argmax(row: OpRow) -> Make:
    """``ttnn.argmax``; ttnn has no argmin."""
    if not row.attr("largest"):
        raise refused(row, "argmin")
    return Make("ttnn.argmax", (row.ref(0),), {
        "dim": row.attr("dim"), "keepdim": bool(row.attr("keepdim")), "memory_config": row.memory,
    })  # fmt: skip


@call("TopK")
def topk(row: OpRow) -> Make:
    """``ttnn.topk`` and its arguments."""
    return Make("ttnn.topk", (row.ref(0), row.attr("k")), {
        "dim": row.attr("dim"), "largest": bool(row.attr("largest")),
        "sorted": bool(row.attr("sorted")), "memory_config": row.memory,
    })  # fmt: skip


@call("Sort")
def sort(row: OpRow) -> Make:
    """``ttnn.sort`` and its arguments."""
    return Make("ttnn.sort", (row.ref(0),), {
        "dim": row.attr("dim"), "descending": bool(row.attr("descending")),
        "memory_config": row.memory,
    })  # fmt: skip


@call("RotaryEmbedding")
def rotary(row: OpRow) -> Make:
    """The rotary embedding and its arguments."""
    x, cos = row.inputs[:2]
    if len(x.shape) == 4 and cos.shape[2] == 1 and x.shape[2] > 1:  # a position for each user
        return Make("ttnn.experimental.rotary_embedding_hf", (row.ref(0), row.ref(1), row.ref(2)),
                    {"is_decode_mode": True, "memory_config": row.memory})  # fmt: skip
    made = Make("ttnn.experimental.rotary_embedding", (row.ref(0), row.ref(1), row.ref(2)),
                {"memory_config": row.memory})  # fmt: skip
    *outer, rows, depth = row.out.shape
    if rows % TILE == 0:
        return made
    # It calls all rows of the last tile its own; a view says which of them are padding.
    return Make("ttnn.reshape", (made, list(row.out.shape), [*outer, round_up(rows, TILE), depth]))


@call("CreateQkvHeads")
def create_heads(row: OpRow) -> Make:
    """Queries, keys and values by heads."""
    return Make("ttnn.transformer.split_query_key_value_and_split_heads", (row.ref(0),), {
        "num_heads": row.attr("heads"), "num_kv_heads": row.attr("kv_heads"),
        "transpose_key": bool(row.attr("transpose_k")), "memory_config": row.memory,
    })  # fmt: skip


@call("ConcatHeads")
def concat_heads(row: OpRow) -> Make:
    """Heads back into rows."""
    return Make("ttnn.transformer.concatenate_heads", (row.ref(0),), {"memory_config": row.memory})
