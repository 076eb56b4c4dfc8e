"""Convolution and what surrounds it: halo, pooling, upsampling."""

from __future__ import annotations

import math

from temper.chips import FIDELITY_PHASES
from temper.cost.data_movement import moved, route, share_ns
from temper.cost.layout import TILIZE_CYCLES
from temper.cost.records import Physics
from temper.cost.work import CORE_GBPS, ISSUE_SRAM_NS, SHORT, Work, dram_bytes
from temper.program.conv_config import even_split
from temper.program.tensor import TILE, TILE_BYTES, ceil_div


def conv2d(work: Work) -> Physics:
    """Convolution as its kernels run it: rows gathered, then a matmul."""
    x, y = work.x, work.y
    weight = work.inputs[1] if len(work.inputs) > 1 else x
    kernel = work.attr("kernel") or [1, 1]
    window = int(kernel[0]) * int(kernel[1])
    channels = int(work.attr("in_channels") or 0)
    if "family" in work.op.attrs or channels <= 1:
        channels = x.shape[-1] if x.shape else 1
    if len(weight.shape) == 4 and weight.shape[:2] == (1, 1):
        # Prepared weights tell to how many channels the input is padded.
        channels = max(channels, weight.shape[2] // max(1, window))
    out = y.shape[-1] if y.shape else 1
    rows = max(1, math.prod(y.shape[:-1]))
    mt, nt = ceil_div(rows, TILE), ceil_div(out, TILE)
    # Weights of grouped convolutions are spread to dense ones, with zeros between the groups.
    kt = ceil_div(window * max(1, channels), TILE)
    cores = work.cores(float(mt))
    sharding = y.memory.sharding if y.memory.sharded else "interleaved"
    mine_n = nt  # output-channel tiles whose weights one core receives
    across = 1  # cores that share the rows of an output and split its channels
    inner = int(kernel[0])  # blocks of the depth: rows of the kernel, of each group of channels
    if sharding == "block":
        if work.context.measured or not y.memory.grid:
            across, along = _block_grid(work, mt, nt)
            cores = across * along
        else:
            across = min(y.memory.grid[0], cores)
            along = max(1, cores // across)
        mine_n = ceil_div(nt, across)
        high = math.ceil(mt / along)
        inner *= across
        # Each of them gathers and tilizes its own input channels, then sends them to the others.
        channels = ceil_div(channels, across)
    elif sharding == "width":
        mine_n = ceil_div(nt, cores)
        high = mt
        inner *= min(cores, ceil_div(channels, TILE))
    else:
        high = math.ceil(mt / cores)
    mine = high * mine_n
    gathered = high * math.ceil(kt / across)
    phases = FIDELITY_PHASES.get(str(work.attr("fidelity") or "HiFi4"), 4)
    macs = mine * kt
    weight_bytes = kt * nt * TILE_BYTES[weight.format]
    # The reader copies one kernel row of each output position at a time, from its own SRAM.
    piece_ns = max(
        ISSUE_SRAM_NS[work.chip.arch],
        int(kernel[1]) * channels * x.element_bytes / CORE_GBPS[work.chip.arch],
    )
    positions = high * TILE
    # Weights come again for each block of rows.
    again = math.ceil(positions / (int(work.attr("act_block_h") or 0) or positions))
    split = max(1, mine // max(1, 8 * nt))
    return Physics(
        "conv2d",
        (sharding, SHORT[weight.format], f"{window}"),
        cores,
        {
            **work.launch(),
            "blocks": 500.0 * inner * again,
            "sfpu": work.epilogue_ns(mine),
        },
        {
            "compute": work.products_ns(float(macs), phases, 1),
            "unpack": work.cycles_ns(macs * (TILE_BYTES[weight.format] / 64 + 16)),
            "noc": positions * int(kernel[0]) * piece_ns,
            "tilize": work.cycles_ns(gathered * TILIZE_CYCLES),
            "spill": work.spill_ns(float(mine), inner),
            "pack": work.cycles_ns(mine * TILE_BYTES[y.format] / 16),
            "noc_sent": high * kt * 2048.0 / CORE_GBPS[work.chip.arch] if across > 1 else 0.0,
            "dram": work.dram_ns(float(weight_bytes)) + work.dram_ns(dram_bytes(x) + dram_bytes(y)),
            "noc_weights": kt
            * mine_n
            * TILE_BYTES[weight.format]
            / CORE_GBPS[work.chip.arch]
            * min(split, 2),
        },
        size=2.0 * mt * nt * kt * 32768,
        matrix_ns=work.products_ns(float(mt * nt * kt), phases, cores),
    )


def _block_grid(work: Work, mt: int, nt: int) -> tuple[int, int]:
    """Cores along channels and along rows as ttnn spreads them, where a row names no grid."""
    grid = work.chip.grid
    across = even_split(nt, int(work.attr("num_cores_c") or 0) or grid[0])
    told = work.context.cores
    if told and told < work.available:
        return min(across, told), max(1, told // across)
    return across, even_split(mt, int(work.attr("num_cores_nhw") or 0) or grid[1])


def halo(work: Work) -> Physics:
    """Rows that neighbouring shards hand each other before a window op."""
    x, y = work.x, work.y
    cores = work.cores(float(y.pages))
    tiled = x.layout == "tile"
    tiles = math.ceil(x.tiles / cores) if tiled else 0
    # What goes out counts: padding, and rows that several cores need. Rows leave in long runs
    # unless they are put together from tiles.
    rows = math.ceil(math.prod(y.shape[:-1]) / cores) if tiled and y.shape else 0
    return Physics(
        "halo",
        (("T" if tiled else "R"), x.memory.sharding),
        cores,
        {**work.launch()},
        {
            "noc": y.size_bytes / cores / CORE_GBPS[work.chip.arch],
            "noc_rows": rows * 5.0,
            "compute": work.cycles_ns(tiles * 200.0),
        },
        size=float(x.size_bytes),
    )


def pool(work: Work) -> Physics:
    """Max and average pooling."""
    x, y = work.x, work.y
    kernel = work.attr("kernel") or [2, 2]
    window = max(1, int(kernel[0]) * int(kernel[1]))
    rows = max(1, math.prod(y.shape[:-1]))
    cores = work.cores(float(rows) / TILE)
    wide = ceil_div(y.shape[-1] if y.shape else 1, TILE)
    sticks = math.ceil(rows / cores)
    return Physics(
        "pool",
        (route(work),),
        cores,
        work.launch(),
        {
            "noc": sticks * window * max(10.0, y.page_bytes / CORE_GBPS[work.chip.arch]),
            "compute": work.cycles_ns(sticks * wide * 60.0),
            "dram": work.dram_ns(dram_bytes(x) + dram_bytes(y)),
        },
        size=float(y.size_bytes * window),
    )


def upsample(work: Work) -> Physics:
    """Upsampling: every output row is written."""
    return moved(work, "upsample", work.y)


def grid_sample(work: Work) -> Physics:
    """Sampling at given places: gathers and a weighted sum."""
    base = moved(work, "grid_sample", work.y)
    overlap = {**base.overlap, "noc": base.overlap["noc"] + 4 * share_ns(work, work.y, base.cores)}
    return Physics("grid_sample", base.variant, base.cores, base.serial, overlap, base.size)
