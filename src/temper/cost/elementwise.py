"""Elementwise kernels: unary, binary, ternary, typecast, copy."""

from __future__ import annotations

from temper.cost.records import Physics
from temper.cost.sfpu import chain_cycles, chain_name
from temper.cost.work import SHORT, Work, dram_bytes, kind_of_memory, letter

# Unpack, one FPU pass and pack of one tile when nothing else limits (FACTS 2.3, 2.5).
TILE_CYCLES = 110.0


def _memory(work: Work) -> str:
    kinds = {kind_of_memory(spec) for spec in (*work.inputs, *work.outputs)}
    if kinds == {"sharded"}:
        return "sharded"
    if "sharded" in kinds:
        return "mixed"
    return "dram" if "dram" in kinds else "sram"


def _stream(work: Work, variant: tuple[str, ...], sfpu_cycles: float, family: str) -> Physics:
    y = work.y
    units = float(y.tiles if y.layout == "tile" else y.pages)
    cores = work.cores(units)
    per_core = units / cores
    rounds = -(-int(units) // cores)
    reads = sum(
        rounds * work.page_ns(spec) * min(1.0, spec.pages / max(units, 1.0))
        for spec in work.inputs
        if kind_of_memory(spec) != "sharded"
    )
    writes = rounds * work.page_ns(y) if kind_of_memory(y) != "sharded" else 0.0
    elements = y.tiles if y.layout == "tile" else max(1.0, y.page_bytes / 2048 * rounds) * cores
    tiles = -(-int(elements) // cores)
    bytes_dram = sum(dram_bytes(spec) for spec in (*work.inputs, y))
    wide = max(2048.0, *(2.0 * s.element_bytes * 512 for s in (*work.inputs, y))) / 2048
    return Physics(
        family,
        variant,
        cores,
        {**work.launch(), "first": work.page_ns(work.x) * 4},
        {
            "dram": work.dram_ns(bytes_dram),
            "noc": max(reads, writes) * (per_core / rounds if rounds else 1.0) + 1e-3,
            "compute": work.cycles_ns(tiles * TILE_CYCLES * wide),
            "sfpu": work.cycles_ns(tiles * sfpu_cycles),
        },
        size=float(y.tiles) * 1024,
    )


def unary(work: Work) -> Physics:
    chain = work.attr("functions") or []
    name = chain_name(chain)
    variant = (_memory(work), SHORT[work.y.format] + letter(work.y), name)
    return _stream(work, variant, chain_cycles(chain, work.chip.arch), "unary")


def binary(work: Work) -> Physics:
    function = str(work.attr("function") or "add")
    fused = [*(work.attr("lhs") or []), *(work.attr("rhs") or []), *(work.attr("post") or [])]
    cycles = chain_cycles([[function], *fused], work.chip.arch)
    operand = "scalar" if len(work.inputs) < 2 else "tensor"
    if len(work.inputs) >= 2 and work.inputs[1].tiles < work.y.tiles:
        operand = "broadcast"
    elif work.inputs and work.inputs[0].tiles < work.y.tiles:
        operand = "broadcast"
    name = chain_name([[function], *fused])
    variant = (_memory(work), SHORT[work.y.format] + letter(work.y), operand, name)
    return _stream(work, variant, cycles, "binary")


def ternary(work: Work) -> Physics:
    function = str(work.attr("function") or "where")
    cycles = chain_cycles([[function]], work.chip.arch)
    return _stream(work, (_memory(work), function), cycles, "ternary")


def typecast(work: Work) -> Physics:
    pair = f"{SHORT[work.x.format]}-{SHORT[work.y.format]}"
    return _stream(work, (_memory(work), letter(work.y), pair), 130.0, "typecast")


def copy(work: Work) -> Physics:
    route = f"{kind_of_memory(work.x)}-{kind_of_memory(work.y)}"
    return _stream(work, (route, letter(work.y)), 0.0, "copy")
