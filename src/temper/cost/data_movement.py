"""Kernels that move pages as they are: slices, shards, concatenation, repetition, embedding."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from temper.cost.records import Physics
from temper.cost.work import CORE_GBPS, SHORT, Work, kind_of_memory, letter
from temper.program.tensor import TILE, TensorSpec, ceil_div


def rows_of(spec: TensorSpec) -> float:
    """Logical rows: pieces of the innermost dimension."""
    return float(math.prod(spec.shape[:-1])) if spec.shape else 1.0


def route(work: Work) -> str:
    """Where a move starts and ends."""
    return f"{kind_of_memory(work.x)}-{kind_of_memory(work.y)}"


def variant(work: Work) -> tuple[str, ...]:
    """Layouts and memories that choose the kernel."""
    layouts = letter(work.x) + letter(work.y)
    return (f"{work.code}:{layouts}", route(work), SHORT[work.y.format])


def share_ns(work: Work, spec: TensorSpec, cores: int, pages: float | None = None) -> float:
    """Time of the busiest core to move its share: page by page, or a shard in one piece."""
    pages = float(spec.pages) if pages is None else pages
    if kind_of_memory(spec) == "sharded":
        return pages * spec.page_bytes / cores / CORE_GBPS[work.chip.arch]
    return math.ceil(pages / cores) * work.page_ns(spec)


def moved(work: Work, family: str, amount: TensorSpec, *, units: float | None = None) -> Physics:
    """A copy of ``amount`` from the input's memory to the output's."""
    x, y = work.x, work.y
    cores = work.cores(float(amount.pages) if units is None else units)
    size = float(amount.size_bytes)
    both = (x.memory.buffer == "dram") + (y.memory.buffer == "dram")
    scale = float(amount.pages)
    # A row read in pieces costs a request a piece.
    pieces = rows_of(amount) / cores * work.page_ns(x, 32)
    return Physics(
        family,
        variant(work),
        cores,
        {**work.launch(), "cores": work.spread_ns(cores)},
        {
            "dram": work.dram_ns(size * both),
            "noc": share_ns(
                work, x, cores, scale * min(1.0, amount.page_bytes / max(x.page_bytes, 1))
            )
            + share_ns(work, y, cores, scale * min(1.0, amount.page_bytes / max(y.page_bytes, 1))),
            "noc_pages": math.ceil(scale / cores) * work.page_ns(amount, amount.page_bytes),
            "noc_rows": pieces if amount.layout == "row_major" else 0.0,
        },
        size=size,
    )


def smaller(work: Work) -> TensorSpec:
    """What partial ops move: the smaller of input and output."""
    return work.x if work.x.size_bytes <= work.y.size_bytes else work.y


def page_grid(spec: TensorSpec) -> list[int]:
    """The pages of a tensor, one entry a dimension: tiles, or rows."""
    shape = list(spec.shape) or [1]
    if spec.layout == "row_major":
        return shape[:-1] or [1]
    shape = [1, *shape] if len(shape) < 2 else shape
    return [*shape[:-2], ceil_div(shape[-2], TILE), ceil_div(shape[-1], TILE)]


@lru_cache(maxsize=16384)
def crowding(run: int, stride: int, runs: int, banks: int) -> float:
    """How much longer the busiest bank works than the average one.

    ``runs`` runs of consecutive pages are touched, each starting ``stride`` pages after the last.
    """
    load = [0] * banks
    for i in range(min(runs, banks)):
        start = i * stride
        for j in range(run % banks):
            load[(start + j) % banks] += 1
    whole = run // banks * min(runs, banks)
    pages = whole * banks + sum(load)
    return (whole + max(load)) * banks / max(pages, 1) if runs > 1 else 1.0


def sliced_pages(whole: TensorSpec, part: TensorSpec) -> tuple[int, int, int]:
    """Consecutive pages of one run of a slice, the stride of the runs, and their number."""
    inside, outside = page_grid(whole), page_grid(part)
    outside = [1] * (len(inside) - len(outside)) + outside
    inside = [1] * (len(outside) - len(inside)) + inside
    run = stride = 1
    position = len(inside)
    while position > 0:
        position -= 1
        run, stride = run * outside[position], stride * inside[position]
        if inside[position] != outside[position]:
            break
    return run, stride, max(1, math.prod(outside[:position]))


# A copy of one element by a core, and the wait for a row that cannot be read in place.
ELEMENT_NS, MISALIGNED_NS = 29.0, 500.0


def slice_(work: Work) -> Physics:
    """Part of a tensor: its pages may lie on few banks, its rows across what a bank delivers."""
    part = smaller(work)
    base = moved(work, "slice", part)
    whole = work.x if part is work.y else work.y
    serial, overlap = dict(base.serial), dict(base.overlap)
    if whole.memory.buffer == "dram":
        crowded = crowding(*sliced_pages(whole, part), work.chip.dram_banks)
        overlap["dram_crowd"] = work.dram_ns(float(part.size_bytes)) * (crowded - 1)
        overlap["dram_rows"] = work.requests_ns(whole, float(part.pages) * crowded)
    else:
        overlap["dram_rows"] = overlap["dram_crowd"] = 0.0
    rows, elements = rows_of(part) / base.cores, math.prod(part.shape) / base.cores
    begins, steps = work.attr("begins") or [], work.attr("steps") or []
    offset = begins[-1] * part.element_bytes if begins else 0
    across = part.layout == "row_major" and offset % work.chip.dram_alignment
    serial["misaligned"] = math.ceil(rows) * MISALIGNED_NS if across else 0.0
    serial["elements"] = elements * ELEMENT_NS if any(s > 1 for s in steps) else 0.0
    return replace(base, serial=serial, overlap=overlap)


def to_interleaved(work: Work) -> Physics:
    """Shards written out to interleaved memory."""
    return _scattered(work, "sharded_to_interleaved")


def to_sharded(work: Work) -> Physics:
    """Interleaved memory read into shards."""
    return _scattered(work, "interleaved_to_sharded")


# Cores that all move pages to or from the SRAM of all others share links: together they get as much
# as this many (measured on Wormhole: 180 to 290 GB/s).
MESH_LINKS = 7.5


def _scattered(work: Work, family: str) -> Physics:
    part = smaller(work)
    base = moved(work, family, part)
    crossing = "sram" in (kind_of_memory(work.x), kind_of_memory(work.y))
    mesh = part.size_bytes / (MESH_LINKS * work.link_gbps) if crossing else 0.0
    return replace(base, overlap={**base.overlap, "noc_mesh": mesh})


def reshard(work: Work) -> Physics:
    """One sharding to another."""
    return moved(work, "reshard", work.y)


def move(work: Work) -> Physics:
    """A buffer moved to another place of its memory."""
    base = moved(work, "move", work.y)
    if kind_of_memory(work.y) != "sharded":
        return base
    # A shard is copied inside its own SRAM, in one piece, at the width of the core's link.
    overlap = {"noc_local": work.y.size_bytes / base.cores / work.link_gbps}
    serial = {"launch": work.chip.launch_floor_ns / 2}
    return Physics("move", ("sharded",), base.cores, serial, overlap, base.size)


def concat(work: Work) -> Physics:
    """Several tensors written behind one another."""
    base = moved(work, "concat", work.y)
    if kind_of_memory(work.x) != "sharded" or kind_of_memory(work.y) != "sharded":
        return base
    # Shards are put together inside their SRAM, as they are moved there.
    local = base.overlap["noc"] * CORE_GBPS[work.chip.arch] / work.link_gbps
    return replace(base, overlap={**base.overlap, "noc": local})


def pad(work: Work) -> Physics:
    """Values added around a tensor."""
    return moved(work, "pad", work.y)


def repeat(work: Work) -> Physics:
    """Each input row is read once and written many times, by one core."""
    base = moved(work, "repeat", work.y)
    x, y = work.x, work.y
    busy = max(1, min(base.cores, x.pages))
    copies = math.ceil(y.pages / busy)
    overlap = {**base.overlap, "noc_pages": copies * work.page_ns(y)}
    return Physics("repeat", base.variant, base.cores, base.serial, overlap, base.size)


def gather(work: Work) -> Physics:
    """Elements picked or put by an index."""
    return moved(work, "gather_scatter", work.y)


# What a core takes to look at one number, how many of them for each result are few, and the
# formats that positions come in.
SCAN_NS, FEW = 25.0, 16
INTEGERS = frozenset({"uint32", "int32", "uint16"})


def generic(work: Work) -> Physics:
    """Any op that no family knows: bytes, pages and tiles of everything it touches.

    Of a tensor larger than all others together only a part can matter, as in a cache.
    """
    tensors = (*work.inputs, *work.outputs)
    largest = max(tensors, key=lambda s: s.size_bytes)
    cores = work.cores(float(largest.pages))
    every = sum(s.size_bytes for s in tensors)
    shares = [min(1.0, max(every - s.size_bytes, 1) / max(s.size_bytes, 1)) for s in tensors]
    parts = list(zip(tensors, shares, strict=True)) if len(tensors) > 1 else [(largest, 1.0)]
    size = float(sum(s.size_bytes * part for s, part in parts))
    in_dram = float(sum(s.size_bytes * part for s, part in parts if s.memory.buffer == "dram"))
    # A few integers made of many numbers are places that were searched for, one by one.
    many = math.prod(work.x.shape) if work.y.format in INTEGERS else 0
    searched = max(0, many - FEW * math.prod(work.y.shape))
    tiles = sum(s.tiles * part for s, part in parts)
    workers = max(1, min(cores, round(sum(s.pages * part for s, part in parts))))
    return Physics(
        "other",
        (work.code, route(work)),
        cores,
        work.launch(),
        {
            "dram": work.dram_ns(in_dram),
            "noc": sum(share_ns(work, s, cores, s.pages * part) for s, part in parts),
            "compute": work.cycles_ns(tiles / workers * 100.0),
            "noc_scan": searched / cores * SCAN_NS,
        },
        size=size,
    )
