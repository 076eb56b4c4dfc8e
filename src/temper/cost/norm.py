"""Normalisation: layer, RMS, group and batch norm."""

from __future__ import annotations

import math

from temper.cost.data_movement import route, rows_of, share_ns
from temper.cost.records import Physics
from temper.cost.work import SHORT, Work, dram_bytes, kind_of_memory
from temper.program.tensor import TILE, TILE_BYTES, ceil_div

# Passes over a tile: squares, mean, scale, weight, bias; FACTS 2.7 gives 1336 ns a tile on one
# Wormhole core for layer norm.
TILE_CYCLES, LAYER_CYCLES, GROUP_CYCLES = 500.0, 900.0, 2500.0
# Buffers as long as a row: input, squares, weights, result, and one to work in. Where they do not
# fit in SRAM a row is read again for its second pass (measured: 300 ns a tile of 96, 530 of 160).
ROW_BUFFERS = 5


def _norm(
    work: Work, family: str, variant: tuple[str, ...], units: float, cycles: float = TILE_CYCLES
) -> Physics:
    x, y = work.x, work.y
    cores = work.cores(units)
    # Rows are not split over cores, except where shards split them.
    whole_rows = units < x.tiles and kind_of_memory(x) != "sharded"
    tiles = (
        math.ceil(units / cores) * (x.tiles / max(units, 1.0))
        if whole_rows
        else math.ceil(x.tiles / cores)
    )
    wide = ceil_div(x.shape[-1] if x.shape else 1, TILE)
    # A residual is as large as x and read row by row with it; weights are read once a core. For
    # one row the two are the same.
    residual = [s for s in work.inputs[1:] if s.shape == x.shape and rows_of(x) > 1]
    others = sum(
        share_ns(work, s, cores) if s in residual else min(s.pages, wide) * work.page_ns(s)
        for s in work.inputs[1:]
        if s in residual or kind_of_memory(s) != "sharded"
    )
    bytes_dram = sum(map(dram_bytes, (x, y, *residual)))
    tile_bytes = TILE_BYTES["float32" if x.format == "float32" else "bfloat16"]
    whole = kind_of_memory(x) == "sharded" or not whole_rows
    fits = wide * ROW_BUFFERS * tile_bytes <= work.chip.sram_usable_bytes
    passes = 1 if whole or fits else 2
    return Physics(
        family,
        variant,
        cores,
        {**work.launch(), "first": 1500.0},
        {
            "dram": work.dram_ns(bytes_dram),
            "noc": share_ns(work, x, cores) * passes + share_ns(work, y, cores),
            "noc_weights": others,
            "compute": work.cycles_ns(tiles * cycles * passes),
        },
        size=float(x.size_bytes),
    )


def rms(work: Work) -> Physics:
    """RMS norm over rows."""
    return _rows(work, "rmsnorm")


def layer(work: Work) -> Physics:
    """Layer norm over rows."""
    return _rows(work, "rmsnorm" if work.attr("norm") == "rms" else "layernorm")


def _rows(work: Work, family: str) -> Physics:
    x = work.x
    wide = ceil_div(x.shape[-1] if x.shape else 1, TILE)
    weights = f"w{len(work.inputs) - 1}"
    cycles = TILE_CYCLES if family == "rmsnorm" else LAYER_CYCLES
    variant = (route(work), weights, SHORT[x.format])
    return _norm(work, family, variant, max(1.0, x.tiles / wide), cycles)


def partial(work: Work) -> Physics:
    """A norm in two ops: the statistics of rows, or the norm by them."""
    x = work.x
    wide = ceil_div(x.shape[-1] if x.shape else 1, TILE)
    return _norm(work, "norm_partial", (work.code,), max(1.0, x.tiles / wide))


def group(work: Work) -> Physics:
    """Each group has its own pass over the tiles that it shares with others, under a mask."""
    x = work.x
    groups = int(work.attr("misc", {}).get("num_groups") or work.attr("groups") or 1)
    channels = max(1, x.shape[-1] if x.shape else 1)
    shared = min(max(1.0, TILE * groups / channels), 4.0)
    variant = (route(work), SHORT[x.format])
    return _norm(work, "groupnorm", variant, float(x.tiles), GROUP_CYCLES * shared)


def batch(work: Work) -> Physics:
    """Batch and group norm."""
    return _norm(work, "groupnorm", (route(work), SHORT[work.x.format]), float(work.x.tiles))
