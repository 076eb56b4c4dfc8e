"""Kernels that change the order of elements: tilize, reshape, transpose, embedding, fill."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache

from temper.cost.data_movement import route, rows_of, share_ns
from temper.cost.records import Physics
from temper.cost.work import SHORT, Work, dram_bytes, kind_of_memory, letter
from temper.program.tensor import TILE, TensorSpec, ceil_div

# The least that a request to a DRAM bank takes, and the store of one byte of padding by a core.
BANK_REQUEST_NS, PAD_CYCLES = 5.0, 0.8
# Unpack, tilize or untilize, and pack of one bfloat16 tile (public kernel measurements).
TILIZE_CYCLES = 80.0
SHUFFLE_CYCLES = 150.0  # the same for a tile that is put together from others


def _tile_rows(spec: TensorSpec) -> int:
    return max(1, spec.tiles // max(1, ceil_div(spec.shape[-1] if spec.shape else 1, TILE)))


def _relayout(work: Work, family: str, tiled: TensorSpec, rowed: TensorSpec) -> Physics:
    tall = _tile_rows(tiled)
    wide = max(1, tiled.tiles // tall)
    cores = work.cores(float(tall))
    tiles = math.ceil(tiled.tiles / cores)
    rows = rows_of(rowed)
    # More cores than tile rows means that several cores share a row and its bank.
    sharing = max(1.0, min(cores / tall, float(wide)))
    mine = math.ceil(tall * sharing / cores) * min(rows / tall, TILE)  # pieces of a core
    piece_bytes = rowed.page_bytes / sharing
    # Those cores walk down the rows together, so one bank serves them all at a time.
    # Tall tensors are split both ways, and groups of cores meet different banks.
    apart = 8 if tall >= 16 else 1
    each_ns = max(BANK_REQUEST_NS, piece_bytes / work.chip.architecture.bank_gbps)
    spread = rows * sharing * each_ns / apart if cores > tall else 0.0
    local = kind_of_memory(work.x) == kind_of_memory(work.y) == "sharded"
    if local:
        mine = spread = 0.0
    wideness = tiled.element_bytes / 2 + rowed.element_bytes / 2
    both = (work.x.memory.buffer == "dram") + (work.y.memory.buffer == "dram")
    # The reader writes the padding of its tiles word by word.
    padding = tiled.tiles * TILE * TILE - math.prod(rowed.shape) if family == "tilize" else 0
    padding_ns = work.cycles_ns(padding / cores * rowed.element_bytes * PAD_CYCLES)
    padded = "pad" if padding or "ValPadding" in work.code or "Unpadding" in work.code else "whole"
    return Physics(
        family,
        (f"{padded}:{route(work)}", SHORT[work.y.format]),
        cores,
        {**work.launch(), "cores": work.spread_ns(cores), "padding": padding_ns},
        {
            "dram": work.dram_ns((work.x.size_bytes + work.y.size_bytes) / 2 * both),
            "noc": math.ceil(mine) * work.page_ns(rowed, piece_bytes),
            "noc_tiles": 0.0 if local else share_ns(work, tiled, cores),
            "noc_bank": spread,
            "dram_rows": work.requests_ns(rowed, rows * sharing) if not local else 0.0,
            "compute": work.cycles_ns(tiles * TILIZE_CYCLES * max(1.0, wideness / 2)),
        },
        size=float(tiled.size_bytes),
    )


def tilize(work: Work) -> Physics:
    """Rows to tiles."""
    return _relayout(work, "tilize", work.y, work.x)


def untilize(work: Work) -> Physics:
    """Tiles to rows."""
    return _relayout(work, "untilize", work.x, work.y)


def embedding(work: Work) -> Physics:
    """Rows of a table, gathered one by one from where it lies; 32 of them make a row of tiles."""
    table, y = work.inputs[1], work.y
    tiled = y.layout == "tile"
    rows = rows_of(y)
    cores = work.cores(rows / TILE if tiled else rows)
    mine = math.ceil(rows / (TILE if tiled else 1) / cores) * (TILE if tiled else 1)
    read = rows * table.page_bytes if table.memory.buffer == "dram" else 0.0
    return Physics(
        "embedding",
        (
            f"{letter(work.x)}{letter(y)}",
            f"{kind_of_memory(table)}-{kind_of_memory(y)}",
            SHORT[y.format],
        ),
        cores,
        {**work.launch(), "cores": work.spread_ns(cores)},
        {
            "dram": work.dram_ns(read + dram_bytes(y)),
            "noc": mine * work.page_ns(table) + share_ns(work, y, cores),
            "compute": work.cycles_ns(y.tiles / cores * TILIZE_CYCLES) if tiled else 0.0,
        },
        size=float(y.size_bytes),
    )


@lru_cache(maxsize=4096)
def touched(x: tuple[int, ...], y: tuple[int, ...]) -> int:
    """Input tiles that one output tile gathers from in a reshape (its first tile is looked at)."""
    in_h, in_w = (x[-2] if len(x) > 1 else 1), x[-1]
    out_h, out_w = (y[-2] if len(y) > 1 else 1), y[-1]
    seen = set()
    for row in range(min(out_h, TILE)):
        for start in (0, min(out_w, TILE) - 1):
            flat = row * out_w + start
            in_row, column = divmod(flat, in_w)
            batch, line = divmod(in_row, in_h)
            seen.add((batch, line // TILE, column // TILE))
    return len(seen)


def _direction(x: TensorSpec, y: TensorSpec) -> str:
    """Whether rows are spread over more padded tiles, gathered into fewer, or neither."""
    if y.size_bytes > x.size_bytes * 1.5:
        return "spread"
    return "gather" if x.size_bytes > y.size_bytes * 1.5 else "same"


def reshape(work: Work) -> Physics:
    """Another shape: free as a view, else rows are moved."""
    x, y = work.x, work.y
    tiled = y.layout == "tile"
    units = float(y.tiles if tiled else y.pages)
    cores = work.cores(units)
    both = (x.memory.buffer == "dram") + (y.memory.buffer == "dram")
    pairs = touched(x.shape, y.shape) if x.shape and y.shape else 1
    out_share = math.ceil(units / cores)
    lines = math.ceil(min(y.shape[-2] if len(y.shape) > 1 else 1, TILE) * out_share) if tiled else 0
    in_share = math.ceil((x.tiles if x.layout == "tile" else x.pages) / cores)
    return Physics(
        "reshape",
        (f"{letter(x)}{letter(y)}:{_direction(x, y)}", route(work), SHORT[y.format]),
        cores,
        {**work.launch(), "cores": work.spread_ns(cores)},
        {
            "dram": work.dram_ns((x.size_bytes + y.size_bytes) / 2 * both),
            "noc": out_share * work.page_ns(y) + in_share * work.page_ns(x),
            "noc_pairs": out_share * pairs * work.page_ns(x) * 4 if tiled else 0.0,
            "noc_rows": lines * 25.0,
            "noc_pieces": 0.0 if tiled or x.layout == "tile" else _pieces_ns(x, y, cores),
        },
        size=float(y.size_bytes),
    )


# A piece of a row: the wait for it, and the copy of a byte (or of four, where all are words) by a
# core where rows do not line up.
PIECE_NS, COPY_NS = 200.0, 5.0


def _pieces_ns(x: TensorSpec, y: TensorSpec, cores: int) -> float:
    """Rows cut or joined: no two cores share a row of either side, and pieces come one by one."""
    short, long = sorted((x.shape[-1] if x.shape else 1, y.shape[-1] if y.shape else 1))
    rows = math.ceil(math.prod(y.shape) / max(1, long))
    size = short * x.element_bytes
    copies = 0.0 if size % 16 == 0 else size / 4 if size % 4 == 0 else size
    piece_ns = PIECE_NS + copies * COPY_NS
    return math.ceil(rows / cores) * ceil_div(long, max(1, short)) * piece_ns


def _lines(work: Work, rows: float, cores: int) -> float:
    """Face lines (16 elements) that each core moves when rows change places."""
    width = ceil_div(work.y.shape[-1] if work.y.shape else 1, 16)
    return math.ceil(rows * width / cores)


def transpose(work: Work) -> Physics:
    """Two dimensions exchanged."""
    dim = str(work.attr("misc", {}).get("dim", "")).rsplit(":", 1)[-1] or _transposed(work)
    return _shuffle(work, "transpose", dim)


def _transposed(work: Work) -> str:
    rank = len(work.x.shape)
    dims = sorted((d - rank if d >= 0 else d) for d in work.attr("dims") or [-2, -1])
    return {(-2, -1): "WH", (-3, -2): "HC"}.get((dims[0], dims[-1]), "CN")


def permute(work: Work) -> Physics:
    """Dimensions in another order."""
    text = work.attr("misc", {}).get("dims")
    dims = (
        [int(d) for d in re.findall(r"\d+", str(text))] if text else list(work.attr("dims") or [])
    )
    kind = "any"
    if dims:
        last = len(dims) - 1
        if dims[-1] == last:
            kind = "pages" if dims[-2:] == [last - 1, last] else "rows"
        else:
            kind = "WH" if dims[-2:] == [last, last - 1] else "columns"
    base = _shuffle(work, "permute", kind)
    if work.y.layout == "row_major":
        return _blocks(work, base, work.x.shape[dims[-1]] if kind in ("WH", "columns") else 0)
    # Cores share the output, whose padding may make it many times the input's size or a part.
    y, cores = work.y, base.cores
    overlap = {
        **base.overlap,
        "noc": share_ns(work, work.x, cores),
        "noc_out": share_ns(work, y, cores),
    }
    if y.layout == "tile":
        overlap["compute"] = work.cycles_ns(math.ceil(y.tiles / cores) * SHUFFLE_CYCLES)
        if base.overlap["noc_lines"]:
            overlap["noc_lines"] = _lines(work, rows_of(y), cores) * work.page_ns(work.x, 32)
    return replace(base, overlap=overlap)


def _blocks(work: Work, base: Physics, along: int) -> Physics:
    """Rows whose elements become columns: read and written in blocks of 32 by 32.

    ``along`` is the length of the dimension that becomes the innermost; 0 where rows stay whole.
    A block reads a piece of each of its rows and writes a piece of each of its columns.
    """
    x, y = work.x, work.y
    wide = max(1, x.shape[-1] if x.shape else 1)
    reads = rows_of(x) * ceil_div(wide, TILE) if along else rows_of(x)
    writes = rows_of(y) * ceil_div(along, TILE) if along else rows_of(y)
    mine = math.ceil((reads + writes) / base.cores)
    overlap = {
        **base.overlap,
        "noc_out": 0.0,
        "noc_lines": mine * work.page_ns(x, 32),
        "dram_rows": work.requests_ns(x, reads),
        "dram_out": work.requests_ns(y, writes) / 2,
    }
    return replace(base, overlap=overlap)


def _shuffle(work: Work, family: str, kind: str) -> Physics:
    x, y = work.x, work.y
    units = float(max(x.tiles, y.tiles) if y.layout == "tile" else max(x.pages, y.pages))
    cores = work.cores(units)
    both = (x.memory.buffer == "dram") + (y.memory.buffer == "dram")
    tiled = y.layout == "tile"
    most = max(rows_of(x), rows_of(y))
    lines = _lines(work, most, cores) if tiled and kind not in ("WH", "pages", "CN") else 0.0
    rows = math.ceil(most / cores) if not tiled else 0.0
    tiles = math.ceil(max(x.tiles, y.tiles) / cores)
    return Physics(
        family,
        (f"{letter(x)}{letter(y)}:{kind}", route(work), SHORT[y.format]),
        cores,
        {**work.launch(), "cores": work.spread_ns(cores)},
        {
            "dram": work.dram_ns((x.size_bytes + y.size_bytes) / 2 * both),
            "noc": share_ns(work, x, cores) + share_ns(work, y, cores),
            "noc_lines": lines * work.page_ns(x, 32) + rows * work.page_ns(x, 32),
            "compute": work.cycles_ns(tiles * SHUFFLE_CYCLES) if tiled else 0.0,
        },
        size=float(max(x.size_bytes, y.size_bytes)),
    )


def fill_pad(work: Work) -> Physics:
    """Only tiles with padding are touched, and only their padding is written."""
    x = work.x
    batch, height, width = x.matrix
    tall, wide = ceil_div(height, TILE), ceil_div(width, TILE)
    below, beside = tall * TILE - height, wide * TILE - width
    tiles = batch * (
        (wide if below else 0) + (tall if beside else 0) - (1 if below and beside else 0)
    )
    tiles = max(tiles, 1)
    cores = work.cores(float(tiles))
    share = math.ceil(tiles / cores)
    filled = max(below * min(width, TILE), beside * min(height, TILE)) if below or beside else 1
    return Physics(
        "fill_pad",
        (route(work), SHORT[x.format]),
        cores,
        work.launch(),
        {
            "dram": work.dram_ns(tiles * x.page_bytes * 2 * (x.memory.buffer == "dram")),
            "noc": share * 2 * work.page_ns(x),
            "compute": work.cycles_ns(share * filled * 2.0) + 2000.0,
        },
        size=float(tiles * 1024),
    )
