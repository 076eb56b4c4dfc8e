"""Matrix multiplication: compute, unpacking, DRAM, multicast and blocks by program config."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from temper.chips import FIDELITY_PHASES
from temper.cost.records import Physics
from temper.cost.work import SHORT, Work, dram_bytes, kind_of_memory
from temper.program import matmul_config
from temper.program.tensor import TILE, TILE_BYTES, ceil_div


def dims(work: Work) -> tuple[int, int, int, int]:
    """Batch, and M, K, N in tiles; N is the output's, as ``b`` may be stored transposed."""
    batch, rows, depth = work.inputs[0].matrix
    if work.attr("transpose_a"):
        rows, depth = depth, rows
    columns = work.y.matrix[2]
    return max(batch, 1), ceil_div(rows, TILE), ceil_div(depth, TILE), ceil_div(columns, TILE)


def _config(work: Work, batch: int, mt: int, kt: int, nt: int) -> Mapping[str, Any]:
    """The program config: as told, or as ttnn would choose it."""
    config: Mapping[str, Any] = work.attr("config") or {}
    name = str(config.get("name") or "auto")
    if name != "auto" or work.context.available not in (0, work.chip.compute_cores):
        return config
    a, b, y = work.inputs[0], work.inputs[1], work.y
    if any(spec.memory.sharded and spec.memory.buffer == "sram" for spec in (a, b)):
        return config
    chosen = matmul_config.choose(
        batch, mt * 32, kt * 32, nt * 32, a, b, y, work.chip, fp32_acc=bool(work.attr("fp32_acc"))
    )
    return chosen.to_attrs()


def physics(work: Work) -> Physics:
    """A matmul: engine, DRAM, on-chip network and partial sums."""
    a, b, y = work.inputs[0], work.inputs[1], work.y
    batch, mt, kt, nt = dims(work)
    config = _config(work, batch, mt, kt, nt)
    name = str(config.get("name") or "auto")
    fidelity = str(work.attr("fidelity") or "HiFi2")
    phases = FIDELITY_PHASES.get(fidelity, 2)
    fuse = config.get("fuse_batch", True) not in (False, 0, "0")
    batch_b = b.matrix[0]
    m_all = mt * batch if batch_b == 1 else mt
    outer = 1 if batch_b == 1 else batch
    passes = 1 if fuse or batch_b != 1 else batch
    out_tiles = m_all * nt * outer
    cores = work.context.cores or int(config.get("cores") or 0) or work.cores(out_tiles)
    pcm, pcn = config.get("per_core_m"), config.get("per_core_n")
    if name == "MatmulMultiCoreReuseMultiCastDRAMSharded":
        # One core a bank computes what the bank holds; the others only lend their SRAM.
        pcm, pcn = m_all, ceil_div(nt, work.chip.dram_banks)
        share, rounds = pcm * pcn, 1.0
    elif name == "MinimalMatmul":
        pcm, pcn = _minimal(m_all, nt, cores)
        share, rounds = pcm * pcn, float(passes)
    elif pcm and pcn:
        rounds = passes * max(1.0, out_tiles / passes / (pcm * pcn * cores))
        share = pcm * pcn * math.ceil(rounds - 1e-9)
    else:
        share = math.ceil(out_tiles / cores)
        pcm = min(m_all, max(1, round(math.sqrt(share * m_all / nt)))) if nt else 1
        pcn = max(1, math.ceil(share / pcm))
        rounds = float(passes)
    # Shards of which the config is not told are taken as a grid of eight along the depth.
    guess = ceil_div(kt, 8) if a.memory.sharded else min(kt, 2)
    kb = int(config.get("in0_block_w") or guess)
    macs = share * kt
    size_a, size_b, size_y = TILE_BYTES[a.format], TILE_BYTES[b.format], TILE_BYTES[y.format]
    osh, osw = int(config.get("out_subblock_h") or 1), int(config.get("out_subblock_w") or 2)
    # An output block smaller than a core's share makes its operands come again.
    again_a = math.ceil(pcn / max(1, min(pcn, int(config.get("out_block_w") or pcn))))
    again_b = math.ceil(pcm / max(1, min(pcm, int(config.get("out_block_h") or pcm))))
    weights = dram_bytes(b) * passes
    moved = dram_bytes(a) + dram_bytes(y)
    rate = work.chip.noc_bytes_per_cycle * work.chip.clock_ghz
    blocks = math.ceil(kt / kb) * rounds * again_a * again_b
    # A core asks for the tiles that it then sends on (or keeps) one by one.
    read_a = 0.0 if kind_of_memory(a) == "sharded" else work.page_ns(a)
    read_b = 0.0 if b.memory.sharded else work.page_ns(b)
    write_y = 0.0 if kind_of_memory(y) == "sharded" else work.page_ns(y)
    variant = (
        _KERNEL.get(name, name),
        f"{kind_of_memory(a)}-{kind_of_memory(b)}-{kind_of_memory(y)}",
        f"{SHORT[a.format]}x{SHORT[b.format]}",
    )
    return Physics(
        "matmul",
        variant,
        cores,
        {
            **work.launch(),
            "blocks": 300.0 * blocks,
            "sfpu": work.epilogue_ns(share),
            "noc_y": share * write_y,
        },
        {
            "compute": work.products_ns(float(macs), phases, 1),
            "unpack": work.cycles_ns(macs * (size_b / 64 / osh + size_a / 64 / osw)),
            "dram_b": weights / work.chip.dram_best_gbps,
            "dram": work.dram_ns(moved),
            "noc": kt * (pcm * size_a * again_a + pcn * size_b * again_b) * rounds / rate,
            "pack": work.cycles_ns(share * size_y / 16),
            "spill": work.spill_ns(share, math.ceil(kt / kb)),
            "noc_a": kt * pcm * again_a * rounds * read_a,
            "noc_b": kt * pcn * again_b * rounds * read_b,
        },
        size=2.0 * out_tiles * kt * 32768,
        matrix_ns=work.products_ns(float(out_tiles * kt), phases, cores),
    )


# Too few rows are of the kernel that multicasts nothing; its cores read like those of this one.
_KERNEL = {matmul_config.MULTI_CORE: matmul_config.REUSE_1D}


def _minimal(mt: int, nt: int, cores: int) -> tuple[int, int]:
    """Tiles of a core's share in ``minimal_matmul``, which cuts both sides over a grid."""
    short = next(s for s in range(math.isqrt(cores), 0, -1) if cores % s == 0)
    ways = [(ceil_div(mt, rows), ceil_div(nt, cores // rows)) for rows in (short, cores // short)]
    return min(ways, key=math.prod)


def ways(work: Work) -> list[Work]:
    """The same matmul on every kernel that it could take; none for sharded operands."""
    a, b, y = work.inputs[0], work.inputs[1], work.y
    if any(spec.memory.sharded for spec in (a, b, y)):
        return []
    batch, mt, kt, nt = dims(work)
    configs = matmul_config.ways(
        batch, mt * TILE, kt * TILE, nt * TILE, a, b, y, work.chip.grid,
        bool(work.attr("fp32_acc")), work.chip.sram_usable_bytes,
    )  # fmt: skip
    ops = [work.op.with_attrs(config=config.to_attrs()) for config in configs]
    return [replace(work, op=op) for op in ops]


def sparse(work: Work) -> Physics:
    """Matmul over experts of which only ``nnz`` are computed."""
    base = physics(work)
    batch_a, batch_b = work.inputs[0].matrix[0], work.inputs[1].matrix[0]
    active = int(work.attr("nnz") or 0) or min(batch_a, batch_b)
    scale = active / max(1, batch_a, batch_b)
    overlap = {name: value * scale for name, value in base.overlap.items()}
    serial = {**base.serial, "blocks": base.serial["blocks"] * active}
    return Physics(
        "sparse_matmul", base.variant[:1], base.cores, serial, overlap, base.size * scale
    )
