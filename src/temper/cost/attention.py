"""Attention and what surrounds it: scaled dot product, decode, rotary embedding, heads, caches."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from temper.chips import FIDELITY_PHASES
from temper.cost.data_movement import crowding, moved, route, share_ns
from temper.cost.records import Physics
from temper.cost.work import SHORT, Work, kind_of_memory
from temper.program.attention_config import blocks_a_core
from temper.program.tensor import TILE, TensorSpec, ceil_div

EXP_CYCLES = 250.0  # decode: approximate exponential and the running sums of one score tile
# What attention costs beyond its multiplications, from measured times of equal work in blocks of
# different size: maximum, sum and rescaled output of a row of query tiles at each block of keys,
# the same for each tile of the head's width, and the start of a block; in cycles.
ROW_CYCLES, ROW_TILE_CYCLES, BLOCK_CYCLES = 1500.0, 70.0, 900.0
# One row of a cache: its tiles are waited for, and nothing overlaps them.
STEP_NS = 700.0
# Cycles of a tile product over the ideal ones (counters of a Blackhole core, FACTS 2.2).
PRODUCT = 1.1


def _four(spec: TensorSpec) -> tuple[int, int, int, int]:
    shape = (1, 1, 1, 1, *spec.shape)[-4:]
    return shape[0], shape[1], shape[2], shape[3]


def _setting(work: Work, name: str) -> int:
    """A number of the program config: the op's own, or one in the profiler's text; else 0."""
    config = work.attr("config")
    if isinstance(config, Mapping) and name in config:
        return int(config[name] or 0)
    misc = work.attr("misc", {})
    if name in misc:
        found = re.search(r"\d+", str(misc[name]))
    else:
        found = re.search(rf"{name}=(\d+)", str(misc.get("cfg", "")))
    return int(found.group(found.lastindex or 0)) if found else 0


def sdpa(work: Work) -> Physics:
    """Attention over whole sequences, block by block."""
    q, k = work.inputs[0], work.inputs[1] if len(work.inputs) > 1 else work.inputs[0]
    batch, heads, seq, depth = _four(q)
    keys_batch, _, keys, _ = _four(k)
    paged = keys_batch not in (batch, 1)
    start = _setting(work, "chunk_start_idx")
    keys = seq + start if paged else keys
    window = _setting(work, "sliding_window_size")
    causal = str(work.attr("misc", {}).get("is_causal", work.attr("causal"))).lower() == "true"
    qt, kt, dt = ceil_div(seq, TILE), ceil_div(keys, TILE), ceil_div(depth, TILE)
    high = max(1, ceil_div(_setting(work, "q_chunk_size") or TILE, TILE))
    wide = max(1, ceil_div(_setting(work, "k_chunk_size") or TILE, TILE))
    chunks = ceil_div(qt, high)
    units = batch * heads * chunks
    cores = work.cores(float(units))
    rounds = blocks_a_core(batch * heads, chunks, cores, causal=causal)
    steps = rounds * _steps(chunks, high, wide, kt, causal, ceil_div(start, TILE))
    tiles = steps * high * wide  # score tiles of a core; a chunk is computed whole
    phases = FIDELITY_PHASES.get(str(work.attr("fidelity") or "HiFi2"), 2)
    mask = work.inputs[3] if len(work.inputs) > 3 else None
    arch = work.chip.architecture
    scores = arch.score_tile_cycles + (arch.score_fp32_cycles if work.attr("fp32_acc") else 0.0)
    cycles = tiles * (dt * 2 * 16 * phases * PRODUCT + scores)
    cycles += steps * (high * (ROW_CYCLES + ROW_TILE_CYCLES * dt) + BLOCK_CYCLES)
    return Physics(
        "sdpa",
        ("paged" if paged else "window" if window else "plain", SHORT[k.format]),
        cores,
        {**work.launch(), "start": 400.0 * rounds},
        {
            "compute": work.cycles_ns(cycles),
            "dram": work.dram_ns(float(q.size_bytes + work.y.size_bytes)),
            "noc": steps * wide * dt * 2 * work.page_ns(k)
            + (tiles * work.page_ns(mask) if mask else 0.0),
        },
        size=float(batch * heads * seq * keys * depth * 4) / (2 if causal else 1),
        matrix_ns=work.products_ns(tiles * dt * 2, phases, 1),
    )


def _steps(chunks: int, high: int, wide: int, kt: int, causal: bool, start: int) -> float:
    """Blocks of keys that a chunk of queries meets, on average over the chunks."""
    every = ceil_div(kt, wide)
    if not causal:
        return float(every)
    met = sum(min(every, ceil_div(start + (i + 1) * high, wide)) for i in range(chunks))
    return met / chunks


def sdpa_decode(work: Work) -> Physics:
    """Attention of one row a user against the cache."""
    q, k = work.inputs[0], work.inputs[1] if len(work.inputs) > 1 else work.inputs[0]
    _, users, heads, depth = _four(q)
    blocks, kv_heads, length, _ = _four(k)
    cached = length if blocks == users else blocks * length // max(1, users)
    # A program of ours says for which position; unsaid, the whole cache is read.
    context = int(work.attr("ctx") or work.attr("context") or 0)
    if not context and not work.context.measured:
        context = cached
    window = _setting(work, "sliding_window_size") or int(work.attr("window") or 0)
    known = "known" if context else "unknown"
    keys = context or min(cached, 128)
    if window:
        keys = min(keys, window)
    keys = max(keys, TILE)
    cores = work.cores(float(users * kv_heads * 8))
    kt, dt = ceil_div(keys, TILE), ceil_div(depth, TILE)
    per_core = users * kv_heads * kt / cores
    size = users * kv_heads * kt * dt * 2 * float(k.page_bytes)
    phases = FIDELITY_PHASES.get(str(work.attr("fidelity") or "HiFi2"), 2)
    return Physics(
        "sdpa_decode",
        (known, kind_of_memory(q), SHORT[k.format]),
        cores,
        {**work.launch(), "start": 4000.0, "heads": 40.0 * min(users * heads, 4096) / 8},
        {
            "compute": work.cycles_ns(math.ceil(per_core) * dt * 2 * 16 * phases),
            "sfpu": work.cycles_ns(math.ceil(per_core) * EXP_CYCLES),
            "dram": work.dram_ns(size),
            "noc": math.ceil(per_core) * dt * 2 * work.page_ns(k),
        },
        size=size,
    )


def rope(work: Work) -> Physics:
    """Rotary embedding: elementwise work over rows."""
    x, y = work.x, work.y
    rows = x.tiles // max(1, ceil_div(x.shape[-1], TILE))
    cores = work.cores(float(rows))
    tiles = math.ceil(rows / cores) * ceil_div(x.shape[-1], TILE)
    in_dram = sum(s.size_bytes for s in (x, y) if s.memory.buffer == "dram")
    tables = sum(math.ceil(tiles) * work.page_ns(s) for s in work.inputs[1:3])
    return Physics(
        "rope",
        (work.code, route(work), kind_of_memory(work.inputs[1]) if len(work.inputs) > 1 else ""),
        cores,
        {**work.launch(), "cores": work.spread_ns(cores)},
        {
            "dram": work.dram_ns(float(in_dram)),
            "noc": share_ns(work, x, cores) + share_ns(work, y, cores),
            "noc_tables": tables,
            "compute": work.cycles_ns(tiles * 900.0),
        },
        size=float(x.size_bytes),
    )


def heads(work: Work) -> Physics:
    """Splitting and joining heads: data movement."""
    code = work.code
    x, y = work.x, work.y
    base = moved(work, "heads", x if "Create" in code else y)
    lines = 0.0
    if "Decode" in code and "Concat" in code:
        _, users, _, depth = _four(x)
        lines = users * ceil_div(depth, 16) * work.page_ns(x, 32)
    elif "Decode" in code:
        depth = y.shape[-1] if y.shape else 128
        count = ceil_div(x.shape[-1], depth) if x.shape else 1
        lines = count * ceil_div(depth, 16) * work.page_ns(x, 32)
    kind = (code, route(work))
    if lines:
        overlap = {"noc_lines": lines, "dram": base.overlap["dram"], "noc": 0.0, "noc_pages": 0.0}
        return Physics("heads", kind, base.cores, base.serial, overlap, base.size)
    overlap = {**base.overlap, "noc_lines": 0.0}
    return Physics("heads", kind, base.cores, base.serial, overlap, base.size)


def fills_cache(work: Work) -> bool:
    """Whether a prompt is copied into a cache, rather than one token of each user put into tiles.

    ``UpdateKVCacheOperation`` does both: an update has one row for each of the cache's users.
    """
    if "Fill" in work.code or "Padded" in work.code or "Fill" in work.op.kind:
        return True
    if "UpdateKVCache" not in work.code or len(work.inputs) < 2:
        return False
    users, rows = _four(work.inputs[0])[0], _four(work.inputs[1])[2]
    return rows not in (users, ceil_div(users, TILE) * TILE)


def kv_cache(work: Work) -> Physics:
    """Fill: tiles are copied. Update: a row of tiles is read, opened, changed and written back."""
    cache = work.x
    new = work.inputs[1] if len(work.inputs) > 1 else work.x
    blocks, kv_heads, length, depth = _four(cache)
    dt = ceil_div(depth, TILE)
    fill = fills_cache(work)
    crowded = 1.0
    if fill:
        cores = work.cores(float(new.tiles // dt))
        steps = 0
        tiles = math.ceil(new.tiles / cores)
    else:
        paged = "Paged" in work.code
        users = _four(new)[1] if paged else _four(new)[2]
        both = 2 if "Fused" in work.code else 1  # keys and values
        cores = work.cores(float(users * both if paged else kv_heads))
        steps = math.ceil(users * both * kv_heads / cores)
        tiles = steps * dt
        if blocks == users:
            stride = kv_heads * ceil_div(length, TILE) * dt
            crowded = crowding(dt, stride, users, work.chip.dram_banks)
    moved_bytes = float(tiles * cores * cache.page_bytes * 2)
    return Physics(
        "kv_cache",
        ("fill" if fill else "update", work.code, SHORT[cache.format]),
        cores,
        {**work.launch(), "cores": work.spread_ns(cores), "steps": steps * STEP_NS},
        {
            "dram": work.dram_ns(moved_bytes),
            "dram_crowd": work.dram_ns(moved_bytes) * (crowded - 1),
            "noc": tiles * 2 * work.page_ns(cache),
            "compute": work.cycles_ns(0.0 if fill else tiles * 300.0),
        },
        size=moved_bytes,
    )
