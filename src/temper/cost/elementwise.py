"""Elementwise kernels: unary, binary, ternary, typecast, copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from temper.cost.records import Physics
from temper.cost.sfpu import chain_cycles, plain_name
from temper.cost.sfpu import cycles as cycles_of
from temper.cost.work import SHORT, Work, dram_bytes, kind_of_memory, letter
from temper.program.tensor import SRAM, TILE, TensorSpec, ceil_div

# Unpack, one FPU pass and pack of one tile when nothing else limits (FACTS 2.3, 2.5).
TILE_CYCLES = 80.0

# The same with a pass of the vector unit, whatever its function.
PASS_CYCLES = 300.0

# What a core takes to spread a row or column over a tile, two elements a store.
FILL_CYCLES = 900.0
# From a request to its answer, over half of the chip.
WAIT_NS = {"dram": 750.0, "sram": 300.0}
# A step of a kernel that reads, computes and writes tile by tile, apart from the bytes it moves;
# and what bytes cost it, relative to streaming from DRAM or to a core's link to other SRAM.
STEP_NS = 250.0
DRAM_READ, DRAM_WRITE, SRAM_READ, SRAM_WRITE = 0.5, 1.0, 1.4, 2.8


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
    # A small operand is read again for other tiles; each core needs a page of it at least.
    reads = sum(
        max(1.0, rounds * min(1.0, spec.pages / max(units, 1.0))) * work.page_ns(spec)
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


def _pipeline(work: Work, variant: tuple[str, ...], sfpu_cycles: float, family: str) -> Physics:
    """One operand: tiles come, are computed and leave, each stage with another tile.

    The first tile goes through all stages; after it the slowest stage sets the pace. Writing to
    DRAM is slower than reading, and a step takes some time however few bytes it moves.
    """
    x, y = work.x, work.y
    units = float(y.tiles if y.layout == "tile" else y.pages)
    cores = work.cores(units)
    if not work.grid_known:
        cores = _likely_grid(y, cores)
    rounds = max(1, -(-int(units) // cores))
    elements = y.tiles if y.layout == "tile" else max(1.0, y.page_bytes / 2048 * rounds) * cores
    tiles = max(1, -(-int(elements) // cores))
    wide = max(2048.0, *(2.0 * s.element_bytes * 512 for s in (x, y))) / 2048
    tile_ns = work.cycles_ns(TILE_CYCLES * wide + PASS_CYCLES - TILE_CYCLES + sfpu_cycles)
    shards = kind_of_memory(x) == kind_of_memory(y) == "sharded"
    steps = 0.0 if shards else rounds * STEP_NS
    later = (rounds - 1) / rounds
    return Physics(
        family,
        variant,
        cores,
        {**_start(work, (x, y)), "compute_first": tile_ns},
        {
            "dram": work.dram_ns(dram_bytes(x) + dram_bytes(y)),
            "noc": (steps + _traffic_ns(work, x, y, cores)) * later,
            "compute": tile_ns * (tiles - 1),
        },
        size=float(y.tiles) * 1024,
    )


def _traffic_ns(work: Work, x: TensorSpec, y: TensorSpec, cores: int) -> float:
    """What the bytes read and written take when each core waits for its own."""
    links = cores * work.chip.architecture.core_gbps
    near = [(s, cost) for s, cost in ((x, SRAM_READ), (y, SRAM_WRITE)) if s.memory == SRAM]
    return (
        DRAM_READ * work.dram_ns(dram_bytes(x))
        + DRAM_WRITE * work.dram_ns(dram_bytes(y))
        + sum(cost * s.size_bytes for s, cost in near) / links
    )


def _older(work: Work) -> bool:
    return bool(work.attr("older", False))


def unary(work: Work) -> Physics:
    """A chain of functions of one operand."""
    chain = work.attr("functions") or []
    older = _older(work)
    cycles = chain_cycles(chain, work.chip.arch, older=older)
    kernels = "older" if older else "current"
    variant = (memory_kind(work), SHORT[work.y.format] + letter(work.y), kernels)
    return _pipeline(work, variant, cycles, "unary")


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
    """Two operands, one function, and the functions fused to it."""
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
    """Three operands, such as where."""
    function = str(work.attr("function") or "where")
    cycles = cycles_of(function, work.chip.arch, 3)
    return _stream(work, (memory_kind(work),), cycles, "ternary", 3)


def typecast(work: Work) -> Physics:
    """Values rewritten in another format."""
    pair = f"{SHORT[work.x.format]}-{SHORT[work.y.format]}"
    return _pipeline(work, (memory_kind(work), letter(work.y), pair), 130.0, "typecast")


def copy(work: Work) -> Physics:
    """A tensor copied as it is."""
    route = f"{kind_of_memory(work.x)}-{kind_of_memory(work.y)}"
    return _stream(work, (route, letter(work.y)), 0.0, "copy", 1)
