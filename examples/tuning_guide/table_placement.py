"""The tuning guide's data placement: an embedding table in SRAM, in DRAM, and split in parts.

    temper run --chip e75 examples/tuning_guide/table_placement.py

The first part is modelled from the board's rates; the second is measured on this host.
"""

from __future__ import annotations

import os
import time

import torch

import temper
from temper.etl.modules import EmbeddingLookup
from temper.etl.workloads import table_placement

LOOKUPS = 16_384


def modelled(chip: str) -> None:
    for rows, width, parts in ((1_000, 128, 1), (100_000, 512, 1), (100_000, 512, 4)):
        found = table_placement(rows, width, chip, lookups=LOOKUPS, parts=parts)
        size = f"{found.table_bytes / 2**20:.1f} MiB"
        sram = "does not fit" if found.sram_ns is None else f"{found.sram_ns / 1e3:.1f} µs"
        gain = "" if found.speedup is None else f", {found.speedup:.0f} times as fast"
        print(f"{rows:7,} x {width} in {parts} part(s), {size:>9}: DRAM "
              f"{found.dram_ns / 1e3:6.1f} µs, SRAM {sram}{gain} (reads, modelled)")  # fmt: skip


def measured(chip: str) -> None:
    table = torch.randn(4_000, 64)
    ids = torch.randint(0, len(table), (64, 64))
    results = []
    for parts in (1, 4):
        lookup = EmbeddingLookup.from_table(table, splits=parts).eval()
        compiled = temper.compile(lookup, chip=chip, level=1, enable_trace=True)
        temper.warmup(compiled, ids)
        start = time.perf_counter()
        for _ in range(5):
            found = compiled(ids)
        wall_ms = (time.perf_counter() - start) / 5 * 1e3
        results.append(found)
        (graph,) = compiled.loaded
        device_us = graph.cost(traced=True).device_ns / 1e3
        print(f"{parts} part(s): {len(graph.program.ops)} ops, device {device_us:.0f} µs "
              f"modelled, {wall_ms:.2f} ms measured here")  # fmt: skip
    print(f"same rows from both: {torch.equal(results[0], results[1])}")
    print("each part is a lookup of its own, so splitting pays only for a table that is too large")


def main() -> None:
    chip = os.environ.get("TEMPER_CHIP", "e75")
    modelled(chip)
    measured(chip)


if __name__ == "__main__":
    main()
