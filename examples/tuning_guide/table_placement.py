"""The tuning guide's data placement: an embedding table in SRAM, in DRAM, and split in parts.

    temper run --chip e75 examples/tuning_guide/table_placement.py

The first part is modelled from the board's rates. The second is what the compiler makes of a
bfloat16 table: from level 2 on a small one is copied to SRAM before it is read (ttnn looks up in
bfloat16 only, and weights stay in DRAM between calls). The third is measured on this host.
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


def compiled(chip: str) -> None:
    lookup = EmbeddingLookup.from_table(torch.randn(1_000, 128)).eval().bfloat16()
    ids = torch.randint(0, 1_000, (LOOKUPS // 128, 128))
    for level in (1, 2):
        made = temper.compile(lookup, chip=chip, level=level, enable_trace=True)
        made(ids)
        (graph,) = made.loaded
        place = {op.inputs[1]: graph.program.spec(op.inputs[1]).memory.buffer
                 for op in graph.program.ops if op.kind == "Embeddings"}  # fmt: skip
        device_us = graph.cost(traced=True).device_ns / 1e3
        print(f"level {level}: table read from {', '.join(place.values()).upper()}, device "
              f"{device_us:.0f} µs modelled")  # fmt: skip


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
    compiled(chip)
    measured(chip)


if __name__ == "__main__":
    main()
