"""Kernels that move pages as they are: slices, shards, concatenation, repetition, embedding."""

from __future__ import annotations

import math

from temper.cost.records import Physics
from temper.cost.work import CORE_GBPS, SHORT, Work, kind_of_memory, letter
from temper.program.tensor import TensorSpec


def rows_of(spec: TensorSpec) -> float:
    """Logical rows: pieces of the innermost dimension."""
    return float(math.prod(spec.shape[:-1])) if spec.shape else 1.0


def route(work: Work) -> str:
    return f"{kind_of_memory(work.x)}-{kind_of_memory(work.y)}"


def variant(work: Work) -> tuple[str, ...]:
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
        {**work.launch(), "cores": 10.0 * cores},
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


def slice_(work: Work) -> Physics:
    return moved(work, "slice", smaller(work))


def to_interleaved(work: Work) -> Physics:
    return moved(work, "sharded_to_interleaved", smaller(work))


def to_sharded(work: Work) -> Physics:
    return moved(work, "interleaved_to_sharded", smaller(work))


def reshard(work: Work) -> Physics:
    return moved(work, "reshard", work.y)


def move(work: Work) -> Physics:
    base = moved(work, "move", work.y)
    if kind_of_memory(work.y) != "sharded":
        return base
    overlap = {"noc": base.overlap["noc"], "dram": 0.0, "noc_pages": 0.0, "noc_rows": 0.0}
    return Physics("move", ("sharded",), base.cores, base.serial, overlap, base.size)


def concat(work: Work) -> Physics:
    return moved(work, "concat", work.y)


def pad(work: Work) -> Physics:
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
    return moved(work, "gather_scatter", work.y)


def generic(work: Work) -> Physics:
    """Any op that no family knows: bytes, pages and tiles of everything it touches."""
    tensors = (*work.inputs, *work.outputs)
    largest = max(tensors, key=lambda s: s.size_bytes)
    cores = work.cores(float(largest.pages))
    size = float(sum(s.size_bytes for s in tensors))
    in_dram = float(sum(s.size_bytes for s in tensors if s.memory.buffer == "dram"))
    return Physics(
        "other",
        (work.code, route(work)),
        cores,
        work.launch(),
        {
            "dram": work.dram_ns(in_dram),
            "noc": sum(share_ns(work, s, cores) for s in tensors),
            "compute": work.cycles_ns(sum(s.tiles for s in tensors) / cores * 100.0),
        },
        size=size,
    )
