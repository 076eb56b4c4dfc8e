"""Elementwise kernels: unary, binary, ternary, typecast, copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from temper.cost.records import Physics
from temper.cost.sfpu import chain_cycles, plain_name
from temper.cost.sfpu import cycles as cycles_of
from temper.cost.work import SHORT, Work, dram_bytes, kind_of_memory, letter
from temper.program.tensor import TILE, TensorSpec, ceil_div

# Unpack, one FPU pass and pack of one tile when nothing else limits (FACTS 2.3, 2.5).
TILE_CYCLES = 80.0

# 1024 stores of a core that spreads a row or column over a tile.
FILL_CYCLES = 2000.0
# From a request to its answer, over half of the chip.
WAIT_NS = {"dram": 750.0, "sram": 300.0}


def memory_kind(work: Work) -> str:
    """How the kernel reaches its tensors, the slowest way deciding."""
    kinds = {kind_of_memory(spec) for spec in (*work.inputs, *work.outputs)}
    if kinds == {"sharded"}:
        return "sharded" if work.grid_known else "sharded?"
    if "sharded" in kinds:
        return "mixed"
    return "dram" if "dram" in kinds else "sram"


def _likely_grid(spec: TensorSpec, offered: int) -> int:
    """Profiler files name all offered cores for some sharded kernels; shards are even."""
    tiles = spec.tiles
    return next((c for c in range(min(offered, 64), 0, -1) if tiles % c == 0), 1)


def _start(work: Work, tensors: Sequence[TensorSpec]) -> dict[str, float]:
    """Launch and first pages; about half of the floor is the way to DRAM and back."""
    serial = work.launch()
    if all(kind_of_memory(spec) == "sharded" for spec in tensors):
        return {**serial, "launch": serial["launch"] / 2, "first": 0.0}
    return {**serial, "first": work.page_ns(work.x) * 4}


def _stream(
    work: Work, variant: tuple[str, ...], sfpu_cycles: float, family: str, operands: int
) -> Physics:
    y = work.y
    inputs = work.inputs[:operands]  # a further one is the output, given by the caller
    units = float(y.tiles if y.layout == "tile" else y.pages)
    cores = work.cores(units)
    if not work.grid_known:
        cores = _likely_grid(y, cores)
    per_core = units / cores
    rounds = -(-int(units) // cores)
    reads = sum(
        rounds * work.page_ns(spec) * min(1.0, spec.pages / max(units, 1.0))
        for spec in inputs
        if kind_of_memory(spec) != "sharded"
    )
    # A reader waits for the tiles of one step before it asks for those of the next.
    apart = {kind_of_memory(spec) for spec in inputs} - {"sharded"}
    wait = WAIT_NS["dram" if "dram" in apart else "sram"] if apart else 0.0
    writes = rounds * work.page_ns(y) if kind_of_memory(y) != "sharded" else 0.0
    elements = y.tiles if y.layout == "tile" else max(1.0, y.page_bytes / 2048 * rounds) * cores
    tiles = -(-int(elements) // cores)
    bytes_dram = sum(dram_bytes(spec) for spec in (*inputs, y))
    wide = max(2048.0, *(2.0 * s.element_bytes * 512 for s in (*inputs, y))) / 2048
    return Physics(
        family,
        variant,
        cores,
        _start(work, (*inputs, y)),
        {
            "dram": work.dram_ns(bytes_dram),
            "noc": max(reads, writes) * (per_core / rounds if rounds else 1.0) + 1e-3,
            "noc_wait": rounds * wait,
            "compute": work.cycles_ns(tiles * TILE_CYCLES * wide),
            "sfpu": work.cycles_ns(tiles * sfpu_cycles),
        },
        size=float(y.tiles) * 1024,
    )


def _older(work: Work) -> bool:
    return bool(work.attr("older", False))


def unary(work: Work) -> Physics:
    chain = work.attr("functions") or []
    older = _older(work)
    cycles = chain_cycles(chain, work.chip.arch, older=older)
    kernels = "older" if older else "current"
    variant = (memory_kind(work), SHORT[work.y.format] + letter(work.y), kernels)
    return _stream(work, variant, cycles, "unary", 1)


def _operand(work: Work) -> str:
    """How the second operand meets the first: a scalar, as large, or a row or column repeated."""
    if len(work.inputs) < 2:
        return "scalar"
    rows, columns = work.y.matrix[1:]
    for spec in work.inputs[:2]:
        _, own_rows, own_columns = spec.matrix
        if own_columns < columns:
            return "column"
        if own_rows < rows:
            return "row"
    return "broadcast" if any(s.tiles < work.y.tiles for s in work.inputs[:2]) else "tensor"


# Functions that the matrix engine does on two tensors; the others run on the vector unit.
_MATRIX = frozenset({"add", "sub", "subtract", "rsub"})


def binary(work: Work) -> Physics:
    function = plain_name(str(work.attr("function") or "add"))
    arch = work.chip.arch
    fused = [*(work.attr("lhs") or []), *(work.attr("rhs") or []), *(work.attr("post") or [])]
    told = work.attr("is_sfpu")
    matrix = function in _MATRIX and work.y.format in _MATRIX_FORMATS if told is None else not told
    cycles = 0.0 if matrix else cycles_of(function, arch, 2)
    cycles += chain_cycles(fused, arch)
    operand = _operand(work)
    formats = ",".join(dict.fromkeys(SHORT[s.format] for s in (*work.inputs[:2], work.y)))
    engine = ("fpu" if matrix else "sfpu") + ("+" if fused else "")
    base = _stream(work, (memory_kind(work), engine, formats, operand), cycles, "binary", 2)
    # The reader spreads a row or column over a tile element by element: a row for each tile, a
    # column once for all tiles of its row.
    mine = math.ceil(work.y.tiles / base.cores)
    if operand == "column":
        mine = math.ceil(mine / ceil_div(work.y.shape[-1] if work.y.shape else 1, TILE))
    fill = work.cycles_ns(mine * FILL_CYCLES) if operand in ("row", "column") else 0.0
    return replace(base, serial={**base.serial, "fill": fill})


_MATRIX_FORMATS = frozenset({"bfloat16", "bfloat8_b", "bfloat4_b", "bfloat2_b", "float32"})


def ternary(work: Work) -> Physics:
    function = str(work.attr("function") or "where")
    cycles = cycles_of(function, work.chip.arch, 3)
    return _stream(work, (memory_kind(work),), cycles, "ternary", 3)


def typecast(work: Work) -> Physics:
    pair = f"{SHORT[work.x.format]}-{SHORT[work.y.format]}"
    return _stream(work, (memory_kind(work), letter(work.y), pair), 130.0, "typecast", 1)


def copy(work: Work) -> Physics:
    route = f"{kind_of_memory(work.x)}-{kind_of_memory(work.y)}"
    return _stream(work, (route, letter(work.y)), 0.0, "copy", 1)
