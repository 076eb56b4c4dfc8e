"""Records of the ops that look along a dimension: sums, largest values, orders."""

from __future__ import annotations

from typing import Any

from temper.chips import ARCHITECTURES, Chip
from temper.program.compute_config import compute_attrs
from temper.program.op import Op, OpKind, Specs, register
from temper.program.table.shared import COMPUTE, entry_bytes, same_shape, width_tiles
from temper.program.tensor import TILE_BYTES


def _reduce_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Tiles of input by direction (columns, rows, outer dimensions), a scaler, two results."""
    rank = max(2, len(inputs[0].shape))
    dims = [d % rank for d in op.attr("dims")] or list(range(rank))
    if rank - 1 in dims:
        depth = 8 if width_tiles(inputs[0]) >= 4 else 2
    elif rank - 2 in dims:
        depth = 2
    else:  # twice the largest share of at most eight that divides the dimension
        size = inputs[0].shape[dims[0]]
        depth = 2 * max(d for d in range(1, 9) if size % d == 0)
    tile = TILE_BYTES[inputs[0].format]
    if inputs[0].layout != "tile":  # rows are tilized and untilized on the way
        return (11 if rank - 1 in dims else 9) * tile
    scaler = 4096 if inputs[0].format == "float32" else 2048
    return depth * tile + scaler + 2 * TILE_BYTES[outputs[0].format]


def _reduce_compute(inputs: Specs, outputs: Specs, arch: str, k: int, norm: str) -> dict[str, Any]:
    return compute_attrs(ARCHITECTURES[arch].exact_fidelity)


def _top_k_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Values and indices of a core's share; several cores share 1024 to 65536 columns."""
    width, entry = width_tiles(inputs[0]), entry_bytes(inputs[0])
    if not 32 <= width <= 2048:
        return 27 * entry
    return 54 * entry + 256 * entry * width // 1024


register(
    # sum | mean | max | min | prod | var | std (correction) | any | all. An inner one is half of
    # the next: one call of ttnn runs both.
    OpKind(
        "Reduce",
        "reduce",
        "ReduceDeviceOperation",
        ("x",),
        {
            "function": "sum",
            "dims": [],
            "keepdim": False,
            "correction": 1,
            "inner": False,
            **COMPUTE,
        },
        buffers=_reduce_buffers,
        compute=_reduce_compute,
    ),
    OpKind(
        "ArgMax",
        "argmax",
        "ArgMaxDeviceOperation",
        ("x",),
        {"dim": None, "keepdim": False, "largest": True},
    ),
    OpKind(
        "TopK",
        "topk",
        "TopKDeviceOperation",
        ("x",),  # -> values, indices
        {"k": 1, "dim": -1, "largest": True, "sorted": True},
        results=(1, 2),
        buffers=_top_k_buffers,
    ),
    OpKind(
        "Sort",
        "sort",
        "SortDeviceOperation",
        ("x",),  # -> values, indices
        {"dim": -1, "descending": False},
        results=(1, 2),
    ),
    OpKind(
        "CumSum", "cumsum", "AccumulationDeviceOperation", ("x",), {"dim": -1}, shapes=same_shape
    ),
)
