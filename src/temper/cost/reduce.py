"""Kernels that shrink or order a dimension: sums, softmax, top-k, argmax, running sums."""

from __future__ import annotations

import math
from dataclasses import replace

from temper.cost.data_movement import SCAN_NS, route, share_ns
from temper.cost.records import Physics
from temper.cost.work import SHORT, Work, kind_of_memory, letter
from temper.program.tensor import TILE, ceil_div


def _reading(
    work: Work,
    family: str,
    variant: tuple[str, ...],
    units: float,
    cycles: float,
    passes: float = 1.0,
    wait: float = 0.0,
) -> Physics:
    """Every core reads its share of the input, maybe several times, and writes the output.

    ``wait`` is the time from asking for a tile to its arrival, where they come one by one.
    """
    x, y = work.x, work.y
    cores = work.cores(units)
    in_dram = sum(s.size_bytes for s in (x, y) if s.memory.buffer == "dram")
    # A unit (a row, a column) is not split: the busiest core has whole ones.
    busiest = math.ceil(units / cores) / max(units, 1.0) if kind_of_memory(x) != "sharded" else 0.0
    tiles = math.ceil(x.tiles * max(busiest, 1 / cores))
    return Physics(
        family,
        variant,
        cores,
        work.launch(),
        {
            "dram": work.dram_ns(float(in_dram) * passes),
            "noc": share_ns(work, x, cores, x.pages * max(busiest * cores, 1.0)) * passes
            + share_ns(work, y, cores),
            "noc_wait": tiles * (0.0 if kind_of_memory(x) == "sharded" else wait),
            "compute": work.cycles_ns(tiles * 100.0),
            "sfpu": work.cycles_ns(tiles * cycles),
        },
        size=float(x.size_bytes),
    )


TILE_WAIT_NS = 350.0


def reduce(work: Work) -> Physics:
    """Sums, means and maxima along a dimension."""
    x = work.x
    misc = work.attr("misc", {})
    dim = str(misc.get("dim", "")).rsplit(":", 1)[-1]
    if not dim:
        dims = [d - len(x.shape) if d >= 0 else d for d in work.attr("dims") or _shrunk(work)]
        dim = "W" if dims == [-1] else "H" if dims == [-2] else "HW" if dims else "W"
    fast = "Fast" in work.code
    wide = ceil_div(x.shape[-1] if x.shape else 1, TILE)
    units = float(work.y.tiles) if fast or dim == "H" else float(x.tiles / wide)
    variant = ("NC" if fast else dim, route(work), SHORT[x.format])
    return _reading(work, "reduce", variant, units, 0.0, wait=0.0 if fast else TILE_WAIT_NS)


def _shrunk(work: Work) -> list[int]:
    """Which of the last two dimensions became one, for rows that do not name them."""
    before, after = ((1, 1, *spec.shape)[-2:] for spec in (work.x, work.y))
    return [d for d in (-2, -1) if before[d] > after[d] == 1]


def softmax(work: Work) -> Physics:
    """Softmax along rows."""
    x = work.x
    misc = work.attr("misc", {})
    lines = _lines(work)
    # Tiles of one line that fit in SRAM are read once; longer lines again for each pass.
    passes = 1.0 if x.tiles / lines < 64 else 3.0
    # Files of 2025 and before name the stable form; ttnn's default has been stable since.
    told = misc.get("numeric_stable", work.attr("numeric_stable") and not work.attr("older"))
    stable = str(told).lower() == "true"
    base = _softmax(work, lines, passes, stable)
    # Maximum, sum and scale of a line wait for each other, however few tiles it has.
    phases = math.ceil(lines / base.cores) * (LINE_CYCLES * (2.5 if stable else 1.0))
    return replace(base, serial={**base.serial, "lines": work.cycles_ns(phases)})


LINE_CYCLES = 2400.0


def _softmax(work: Work, lines: float, passes: float, stable: bool) -> Physics:
    exp = work.chip.architecture.exp_tile_cycles
    cycles = exp + 150.0 + (exp + 300.0 if stable else 0.0)  # the maximum is found first
    variant = ("stable" if stable else "plain", route(work))
    return _reading(work, "softmax", variant, lines, cycles, passes)


def _lines(work: Work) -> float:
    """Lines of tiles that are reduced one by one: along a row, down a column, or across."""
    x = work.x
    rank = len(x.shape)
    dim = int(work.attr("misc", {}).get("dim", work.attr("dim", -1)))
    back = dim - rank if dim >= 0 else dim
    if back < -2 and x.shape[back]:
        return float(x.tiles / x.shape[back])
    length = x.shape[back] if back == -2 and rank > 1 else x.shape[-1] if x.shape else 1
    return float(x.tiles / ceil_div(length, TILE))


def topk(work: Work) -> Physics:
    """The largest of each row."""
    x = work.x
    if "ArgMax" in work.code or work.op.kind == "ArgMax":
        elements = float(math.prod(x.shape)) if x.shape else 1.0
        cores = work.cores(elements / 64)
        scan = elements / cores * SCAN_NS
        return Physics(
            "topk",
            ("argmax", letter(x)),
            cores,
            work.launch(),
            {"dram": work.dram_ns(float(x.size_bytes)), "noc": scan, "sfpu": 0.0, "compute": 0.0},
            size=float(x.size_bytes),
        )
    wide = ceil_div(x.shape[-1] if x.shape else 1, TILE)
    stages = max(1.0, math.log2(max(2, wide)))
    base = _reading(work, "topk", (work.code,), float(x.tiles / wide), 3000.0 * stages)
    return base


def cumsum(work: Work) -> Physics:
    """Running sums: one pass that cannot be split."""
    return _reading(work, "cumsum", (route(work),), float(work.y.tiles), 100.0)
