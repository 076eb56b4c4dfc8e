"""Decoding with caches: writes in place, attention over a cache, heads by user."""

from __future__ import annotations

from typing import Any

from temper.program.tensor import TILE, TensorSpec, ceil_div, round_up
from temper.targets.ttnn.expressions import Make, coordinate, dtype
from temper.targets.ttnn.table import OpRow, call, compute_config


@call("FillCache")
def fill_cache(row: OpRow) -> Make:
    """``ttnn.fill_cache`` and its arguments."""
    return Make("ttnn.fill_cache", (row.ref(0), row.ref(1), row.attr("batch_index")))


@call("UpdateCache")
def update_cache(row: OpRow) -> Make:
    """The update of one row a user."""
    return Make("ttnn.experimental.paged_update_cache", (row.ref(0), row.ref(1)),
                {"update_idxs_tensor": row.ref(2)})  # fmt: skip


@call("SdpaDecode")
def attention_decode(row: OpRow) -> Make:
    """Decode attention and its arguments."""
    kwargs: dict[str, Any] = {
        "cur_pos_tensor": row.ref(3),
        "memory_config": row.memory,
        "compute_kernel_config": compute_config(row),
    }
    if row.attr("scale") is not None:
        kwargs["scale"] = float(row.attr("scale"))
    if row.attr("window"):
        kwargs["sliding_window_size"] = int(row.attr("window"))
    return Make(
        "ttnn.transformer.scaled_dot_product_attention_decode",
        (row.ref(0), row.ref(1), row.ref(2)),
        kwargs,
    )


@call("CreateQkvHeadsDecode")
def create_heads_decode(row: OpRow) -> Make:
    """Heads of a decode step."""
    rows = Make("ttnn.unsqueeze_to_4D", (row.ref(0),))
    return Make("ttnn.experimental.nlp_create_qkv_heads_decode", (rows,), {
        "num_heads": row.attr("heads"), "num_kv_heads": row.attr("kv_heads"),
        "memory_config": row.memory,
    })  # fmt: skip


@call("ConcatHeadsDecode")
def concat_heads_decode(row: OpRow) -> Make:
    """Heads of a decode step back into rows."""
    heads = row.inputs[0].shape[-2]
    made = Make("ttnn.experimental.nlp_concat_heads_decode", (row.ref(0),), {"num_heads": heads})
    # It calls all rows of the tile users; a view says which of them are padding.
    *outer, users, width = row.out.shape
    padded = [*outer, round_up(users, TILE), width]
    return Make("ttnn.reshape", (made, list(row.out.shape), padded))


@call("SparseMatmul")
def sparse_matmul(row: OpRow) -> Make:
    """Operands of four dimensions, experts second; no count, which would have to be exact."""
    a, b, made = row.inputs[0], row.inputs[1], row.out
    experts = b.shape[0]
    each = len(a.shape) == 3  # every expert has rows of its own
    rows = (1, *a.shape) if each else (1, 1, *a.shape)
    out = Make(
        "ttnn.sparse_matmul",
        (_shaped(row, 0, rows), _shaped(row, 1, (1, *b.shape))),
        {
            "sparsity": _shaped(row, 2, (1, 1, 1, experts)),
            "program_config": _sparse_config(row, a, made),
            "is_input_a_sparse": each,
            "is_input_b_sparse": True,
            "memory_config": row.memory,
            "dtype": dtype(made.format),
            "compute_kernel_config": compute_config(row),
        },
    )
    return Make("ttnn.reshape", (out, list(made.shape)))


def _shaped(row: OpRow, index: int, shape: tuple[int, ...]) -> Make:
    return Make("ttnn.reshape", (row.ref(index), list(shape)))


def _sparse_config(row: OpRow, a: TensorSpec, made: TensorSpec) -> Make:
    """The only kind that it takes: columns over the cores, rows multicast to all of them."""
    rows, columns, depth = (
        ceil_div(size, TILE) for size in (made.shape[-2], made.shape[-1], a.shape[-1])
    )
    each, grid = _rectangle(columns, row.chip.grid)
    return Make("ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig", kwargs={
        "compute_with_storage_grid_size": coordinate(*grid),
        "in0_block_w": max(n for n in (1, 2, 4, 8) if depth % n == 0),
        "out_subblock_h": 1, "out_subblock_w": 1, "out_block_h": rows, "out_block_w": each,
        "per_core_M": rows, "per_core_N": each,
        "fuse_batch": False, "fused_activation": None, "mcast_in0": True,
    })  # fmt: skip


def _rectangle(columns: int, grid: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    """The fewest columns for each core with which all cores of a rectangle have work."""
    for each in range(ceil_div(columns, grid[0] * grid[1]), columns):
        cores = ceil_div(columns, each)
        for width in range(min(cores, grid[0]), 0, -1):
            if cores % width == 0 and cores // width <= grid[1]:
                return each, (width, cores // width)
    return columns, (1, 1)
