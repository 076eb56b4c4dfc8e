"""Kernels that only move data: slices, reshapes, layouts, shards, heads, caches."""

from __future__ import annotations

import math

from temper.cost.records import Physics
from temper.cost.work import SHORT, Work, dram_bytes, kind_of_memory, letter
from temper.program.tensor import TensorSpec


def _route(work: Work) -> str:
    return f"{kind_of_memory(work.x)}-{kind_of_memory(work.y)}"


def _rows(spec: TensorSpec) -> float:
    """Logical rows: pieces of the innermost dimension."""
    return float(math.prod(spec.shape[:-1])) if spec.shape else 1.0


def pages(work: Work, family: str, variant: tuple[str, ...], *,
          moved: TensorSpec | None = None, units: float | None = None) -> Physics:
    """Every core reads its share of pages and writes it; the moved tensor sets the amount."""
    y = moved or work.y
    units = float(y.pages) if units is None else units
    cores = work.cores(units)
    share = math.ceil(y.pages / cores)
    x = work.x
    read_ns = work.page_ns(x, min(x.page_bytes, max(y.page_bytes, 32)) if x.layout != "tile" else None)
    sharded_in = kind_of_memory(x) == "sharded"
    sharded_out = kind_of_memory(y) == "sharded"
    row_ns = work.page_ns(x, 32)
    bytes_moved = float(y.size_bytes)
    in_dram = x.memory.buffer == "dram"
    out_dram = work.y.memory.buffer == "dram"
    return Physics(
        family,
        variant,
        cores,
        {**work.launch(), "cores": 10.0 * cores},
        {
            "dram": work.dram_ns(bytes_moved * (in_dram + out_dram)),
            "noc": share * (read_ns * (0.5 if sharded_in else 1) + work.page_ns(y) * (0.5 if sharded_out else 1)),
            "noc_rows": math.ceil(_rows(y) / cores) * row_ns,
        },
        size=bytes_moved,
    )


def simple(family: str):  # type: ignore[no-untyped-def]
    def physics(work: Work) -> Physics:
        variant = (work.code, letter(work.x) + letter(work.y), _route(work), SHORT[work.y.format])
        return pages(work, family, variant)

    return physics
