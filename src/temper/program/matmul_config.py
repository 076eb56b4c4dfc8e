"""The matmul program config that ttnn picks by itself: which cores work, on which blocks.

The rules are those of ttnn 0.81 (FACTS 2.9): a sharded first operand dictates the config, a core
grid asked for by the caller gives a 1D or 2D multicast on that grid, everything else goes through
the "simple" selection. All block numbers are in tiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from temper.chips import Chip
from temper.program.op import Op, Specs
from temper.program.tensor import TILE, TILE_BYTES, TensorSpec, ceil_div, divisors, round_up

REUSE_2D = "MatmulMultiCoreReuseMultiCast"
REUSE_1D = "MatmulMultiCoreReuseMultiCast1D"
REUSE = "MatmulMultiCoreReuse"
MULTI_CORE = "MatmulMultiCore"
# Weights over the DRAM banks; never ttnn's own choice.
DRAM_SHARDED = "MatmulMultiCoreReuseMultiCastDRAMSharded"

# Order in which ttnn tries subblocks (h, w); the area is what fits half of Dest.
_SUBBLOCKS = (
    (4, 2), (2, 4), (8, 1), (1, 8), (7, 1), (1, 7), (3, 2), (2, 3), (6, 1), (1, 6), (5, 1), (1, 5),
    (2, 2), (4, 1), (1, 4), (3, 1), (1, 3), (2, 1), (1, 2), (1, 1),
)  # fmt: skip
_NARROW_RATIO = 8


@dataclass(frozen=True, slots=True)
class MatmulConfig:
    """One program config; ``name`` is ttnn's class name without ``ProgramConfig``."""

    name: str
    grid: tuple[int, int]
    in0_block_w: int = 1
    out_subblock_h: int = 1
    out_subblock_w: int = 1
    out_block_h: int = 1
    out_block_w: int = 1
    per_core_m: int = 1
    per_core_n: int = 1
    mcast_in0: bool = False
    fuse_batch: bool = False
    cores: int = 1

    def to_attrs(self) -> dict[str, Any]:
        """The mapping for ``op.attrs["config"]``: plain JSON."""
        attrs: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return {**attrs, "grid": list(self.grid)}

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> MatmulConfig:
        return cls(**{**attrs, "grid": (int(attrs["grid"][0]), int(attrs["grid"][1]))})


@dataclass(frozen=True, slots=True)
class _Problem:
    """The matmul in tiles, and what its circular buffers may use."""

    batch_a: int
    batch_b: int
    mt: int
    kt: int
    nt: int
    in0_tile: int
    in1_tile: int
    interm_tile: int
    bias_tile: int
    in0_shard_bytes: int
    limit_bytes: int
    fp32_acc: bool

    def buffer_bytes(self, m: int, n: int, k: int) -> int:
        """ttnn's own estimate, which it compares with the free SRAM (FACTS 2.9)."""
        return (
            2 * m * k * self.in0_tile
            + 2 * n * k * self.in1_tile
            + m * n * (self.in0_tile + self.interm_tile)
            + n * self.bias_tile
            + self.in0_shard_bytes
        )

    def fits(self, m: int, n: int, k: int) -> bool:
        return self.buffer_bytes(m, n, k) < self.limit_bytes


def choose(
    batch: int,
    m: int,
    k: int,
    n: int,
    in0: TensorSpec,
    in1: TensorSpec,
    out: TensorSpec,
    chip: Chip,
    *,
    fidelity: str = "HiFi4",
    fp32_acc: bool = False,
    fuse_batch: bool = False,
    bias_format: str | None = None,
    core_grid: tuple[int, int] | None = None,
    sram_free_bytes: int | None = None,
) -> MatmulConfig:
    """The config for ``(batch, m, k) x (k, n)``; a batched ``in1`` is recognised by its shape.

    ``core_grid`` asks for a multicast config on that grid, as ttnn's ``core_grid=`` does.
    ``sram_free_bytes`` is what lies below the lowest tensor in SRAM; all of it when omitted.
    ``fidelity`` does not change ttnn's choice; it is part of the key so that callers can pass
    what they have.
    """
    return _choose(
        batch, m, k, n, in0, in1, out, chip.grid, fp32_acc, fuse_batch, bias_format, core_grid,
        chip.sram_usable_bytes if sram_free_bytes is None else sram_free_bytes,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _choose(
    batch: int,
    m: int,
    k: int,
    n: int,
    in0: TensorSpec,
    in1: TensorSpec,
    out: TensorSpec,
    grid: tuple[int, int],
    fp32_acc: bool,
    fuse_batch: bool,
    bias_format: str | None,
    core_grid: tuple[int, int] | None,
    limit_bytes: int,
) -> MatmulConfig:
    problem = _problem(
        batch, m, k, n, in0, in1, out, fp32_acc, fuse_batch, bias_format, limit_bytes
    )
    if core_grid is not None:
        return _on_grid(problem, core_grid)
    if in0.memory.sharded and in0.memory.buffer == "sram":
        return _from_shard(problem, in0, out)
    return _simple(problem, in0, in1, out, grid)


def _problem(
    batch: int,
    m: int,
    k: int,
    n: int,
    in0: TensorSpec,
    in1: TensorSpec,
    out: TensorSpec,
    fp32_acc: bool,
    fuse_batch: bool,
    bias_format: str | None,
    limit_bytes: int,
) -> _Problem:
    batch_b = in1.matrix[0]
    fused = fuse_batch and batch_b == 1
    return _Problem(
        batch_a=1 if fused else batch,
        batch_b=batch_b,
        mt=ceil_div(m, TILE) * (batch if fused else 1),
        kt=ceil_div(k, TILE),
        nt=ceil_div(n, TILE),
        in0_tile=TILE_BYTES[in0.format],
        in1_tile=TILE_BYTES[in1.format],
        interm_tile=4096 if fp32_acc else max(2048, TILE_BYTES[out.format]),
        bias_tile=TILE_BYTES[bias_format] if bias_format else 0,
        in0_shard_bytes=_shard_bytes(in0.memory.shard, in0.format),
        limit_bytes=limit_bytes,
        fp32_acc=fp32_acc,
    )


@lru_cache(maxsize=4096)
def ways(
    batch: int, m: int, k: int, n: int, in0: TensorSpec, in1: TensorSpec, out: TensorSpec,
    grid: tuple[int, int], fp32_acc: bool, limit_bytes: int,
) -> tuple[MatmulConfig, ...]:  # fmt: skip
    """One config of every kernel that interleaved operands can take, whichever ttnn prefers."""
    problem = _problem(batch, m, k, n, in0, in1, out, fp32_acc, False, None, limit_bytes)
    return (
        _one_d(problem, grid, mcast_in0=True),
        _one_d(problem, grid, mcast_in0=False),
        _two_d(problem, grid),
        _two_d(problem, grid, multiple=2),  # a prime number of tiles has no blocks
        _multi_core(problem, grid),
    )


def _shard_bytes(shard: tuple[int, int] | None, fmt: str) -> int:
    if shard is None:
        return 0
    return ceil_div(shard[0], TILE) * ceil_div(shard[1], TILE) * TILE_BYTES[fmt]


def _simple(
    p: _Problem, in0: TensorSpec, in1: TensorSpec, out: TensorSpec, grid: tuple[int, int]
) -> MatmulConfig:
    """The selection for an interleaved first operand without a grid asked for."""
    memories = (in0.memory, in1.memory, out.memory)
    interleaved = not any(memory.sharded for memory in memories)
    all_dram = all(memory.buffer == "dram" for memory in memories)
    if p.batch_a == 1 and p.batch_b > 1 and interleaved:
        return _one_d(p, grid, mcast_in0=False)
    # ttnn compares the padded sizes of one matrix: the batch is looped, not fused.
    height, width = p.mt * TILE, p.nt * TILE
    narrow = max(height, width) // min(height, width) > _NARROW_RATIO
    narrow = narrow or (all_dram and (height <= TILE or width <= TILE))
    if interleaved and narrow and all_dram:
        return _one_d(p, grid, mcast_in0=width > height)
    if interleaved and all_dram:
        return _two_d(p, grid)

    factor = next((f for f in (16, 8, 4, 2) if p.fits(f, f, 2)), 1)
    rows, columns = ceil_div(p.mt, factor), ceil_div(p.nt, factor)
    block_w = 2
    if (out.memory.sharded or rows > 1 or columns > 1) and p.kt % 2:
        block_w = 1
    if rows * columns > grid[0] * grid[1] or p.kt % block_w:
        return _multi_core(p, grid)
    blocks_fit = (rows, columns) != (1, 1) and rows <= grid[1] and columns <= grid[0]
    out_kind = out.memory.sharding if not blocks_fit else "interleaved"
    if (interleaved and narrow and width > height) or out_kind == "width":
        return _one_d(p, grid, mcast_in0=True)
    if blocks_fit and rows == 1:
        return _one_d(p, grid, mcast_in0=True)
    if (interleaved and narrow) or out_kind == "height" or (blocks_fit and columns == 1):
        return _one_d(p, grid, mcast_in0=False)
    if blocks_fit or out_kind == "block":
        subblock_h = 4 if factor == 2 else 1
        return MatmulConfig(
            REUSE_2D, grid, block_w, subblock_h, min(2, factor), factor, factor, factor, factor,
            cores=rows * columns,
        )  # fmt: skip
    return _multi_core(p, grid)


def _two_d(p: _Problem, grid: tuple[int, int], *, multiple: int = 1) -> MatmulConfig:
    """2D multicast over the whole grid for operands in DRAM; K blocks shrink first."""
    per_m = round_up(ceil_div(p.mt, grid[1]), multiple)
    per_n = round_up(ceil_div(p.nt, grid[0]), multiple)
    block_w = p.kt // grid[0] if p.kt % grid[0] == 0 else 1
    out_h, out_w, block_w = _shrink(p, per_m, per_n, block_w, shrink_k=True)
    blocks = (*subblock(out_h, out_w, p.fp32_acc), out_h, out_w, per_m, per_n)
    cores = ceil_div(p.mt, per_m) * ceil_div(p.nt, per_n)
    return MatmulConfig(REUSE_2D, grid, block_w, *blocks, cores=cores)


def _one_d(
    p: _Problem,
    grid: tuple[int, int],
    *,
    mcast_in0: bool,
    block_w: int | None = None,
    fuse_batch: bool = False,
) -> MatmulConfig:
    """1D multicast: every core holds all rows (``mcast_in0``) or all columns of the output."""
    cores = grid[0] * grid[1]
    mt = p.mt * (p.batch_a if fuse_batch else 1)
    per_m = mt if mcast_in0 else ceil_div(mt, cores)
    per_n = ceil_div(p.nt, cores) if mcast_in0 else p.nt
    if block_w is None:
        block_w = 2 if p.kt % 2 == 0 else 1
    out_h, out_w, _ = _shrink(p, per_m, per_n, block_w, shrink_k=False)
    sub_h, sub_w = subblock(out_h, out_w, p.fp32_acc)
    used = ceil_div(p.nt, per_n) if mcast_in0 else ceil_div(mt, per_m)
    return MatmulConfig(
        REUSE_1D, grid, block_w, sub_h, sub_w, out_h, out_w, per_m, per_n, mcast_in0, fuse_batch,
        used,
    )  # fmt: skip


def _on_grid(p: _Problem, grid: tuple[int, int]) -> MatmulConfig:
    """The config for a core grid asked for: 1D when narrow, 2D otherwise, batches fused."""
    if p.batch_b > 1:
        if p.batch_a == 1:
            return _one_d(p, grid, mcast_in0=False)
        sub_h, sub_w = subblock(p.mt, p.nt, p.fp32_acc)
        cores = min(p.batch_a, grid[0] * grid[1])
        return MatmulConfig(REUSE, grid, 1, sub_h, sub_w, p.mt, p.nt, p.mt, p.nt, cores=cores)
    mt = p.batch_a * p.mt
    ratio = max(mt, p.nt) // min(mt, p.nt)
    if ratio > _NARROW_RATIO or min(p.kt, p.mt, p.nt) == 1:
        block_w = ceil_div(p.kt, grid[0] * grid[1])
        while p.kt % block_w:
            block_w -= 1
        found = _one_d(p, grid, mcast_in0=mt <= p.nt, block_w=block_w, fuse_batch=True)
        # Sharded results want whole rows of a block, or one tile row at a time.
        whole = found.out_subblock_w == found.per_core_n
        return found if whole else replace(found, out_subblock_h=1)
    block_w = next(w for w in (4, 3, 2, 1) if p.kt % w == 0)
    per_m, per_n = ceil_div(mt, grid[1]), ceil_div(p.nt, grid[0])
    out_h, out_w, _ = _shrink(p, per_m, per_n, block_w, shrink_k=False)
    sub_h, sub_w = subblock(out_h, out_w, p.fp32_acc)
    if sub_w != per_n:
        sub_h = 1
    cores = ceil_div(mt, per_m) * ceil_div(p.nt, per_n)
    return MatmulConfig(
        REUSE_2D, grid, block_w, sub_h, sub_w, out_h, out_w, per_m, per_n, fuse_batch=True,
        cores=cores,
    )  # fmt: skip


def _from_shard(p: _Problem, in0: TensorSpec, out: TensorSpec) -> MatmulConfig:
    """The config that the first operand's shards dictate; the output keeps their scheme."""
    memory = in0.memory
    assert memory.grid is not None
    assert memory.shard is not None
    grid = memory.grid
    shard_h, shard_w = ceil_div(memory.shard[0], TILE), ceil_div(memory.shard[1], TILE)
    if p.batch_b > 1:
        sub_h, sub_w = subblock(shard_h, p.nt, p.fp32_acc, one_row=out.memory.sharded)
        return MatmulConfig(
            REUSE, grid, shard_w, sub_h, sub_w, shard_h, p.nt, shard_h, p.nt, cores=memory.cores
        )
    mt = p.batch_a * p.mt
    if memory.sharding == "width":
        per_m, per_n, block_w = mt, ceil_div(p.nt, memory.cores), math.gcd(shard_w, p.kt)
        cores = ceil_div(p.nt, per_n)
    elif memory.sharding == "height":
        per_m, per_n, block_w = shard_h, p.nt, p.kt
        cores = ceil_div(mt, per_m)
    else:
        per_m, per_n = ceil_div(mt, grid[1]), ceil_div(p.nt, grid[0])
        block_w = math.gcd(shard_w, p.kt) if grid[0] * shard_w == p.kt else 1
        cores = ceil_div(mt, per_m) * ceil_div(p.nt, per_n)
    out_h, out_w, _ = _shrink(p, per_m, per_n, block_w, shrink_k=False)
    out_h = 1 if out.memory.sharded and out_w != per_n else out_h  # whole rows, or row by row
    sub_h, sub_w = subblock(out_h, out_w, p.fp32_acc, one_row=out.memory.sharded)
    one_d = memory.sharding != "block"
    return MatmulConfig(
        REUSE_1D if one_d else REUSE_2D, grid, block_w, sub_h, sub_w, out_h, out_w, per_m, per_n,
        memory.sharding == "width", True, cores,
    )  # fmt: skip


def _multi_core(p: _Problem, grid: tuple[int, int]) -> MatmulConfig:
    """One output tile at a time a core, nothing reused."""
    tiles = max(p.batch_a, p.batch_b) * p.mt * p.nt
    return MatmulConfig(MULTI_CORE, grid, cores=min(tiles, grid[0] * grid[1]))


def subblock(h: int, w: int, fp32_acc: bool, *, one_row: bool = False) -> tuple[int, int]:
    """(h, w) of the part of a block that Dest holds; four tiles with float32 accumulation."""
    for sub_h, sub_w in _SUBBLOCKS:
        if fp32_acc and sub_h * sub_w > 4:
            continue
        if one_row and (sub_w != w or sub_h != 1):
            continue
        if h % sub_h == 0 and w % sub_w == 0:
            return sub_h, sub_w
    return 1, 1


def _shrink(
    p: _Problem, per_m: int, per_n: int, block_w: int, *, shrink_k: bool
) -> tuple[int, int, int]:
    """Largest output block (squarest of equal area) whose buffers fit, then the deepest K."""
    if p.fits(per_m, per_n, block_w):
        return per_m, per_n, block_w
    by_area: dict[int, tuple[int, int]] = {}
    for m in reversed(divisors(per_m)):
        for n in reversed(divisors(per_n)):
            known = by_area.get(m * n)
            if known is None or max(m, n) / min(m, n) <= max(known) / min(known):
                by_area[m * n] = (m, n)
    blocks = [by_area[area] for area in sorted(by_area, reverse=True)]
    depths = divisors(block_w)[::-1] if shrink_k else [block_w]
    for m, n in blocks:
        for k in depths:
            if p.fits(m, n, k):
                return m, n, k
    return 1, 1, 1


def matmul_config_of(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> MatmulConfig:
    """The op's own config, or the one that ttnn would choose."""
    config = op.attr("config")
    if config:
        return MatmulConfig.from_attrs(config)
    batch, m, k, n = matmul_shape(op, inputs)
    return choose(
        batch, m, k, n, inputs[0], inputs[1], outputs[0], chip,
        fp32_acc=op.attr("fp32_acc"), bias_format=inputs[2].format if len(inputs) > 2 else None,
    )  # fmt: skip


def matmul_shape(op: Op, inputs: Specs) -> tuple[int, int, int, int]:
    """(batch of a, M, K, N) of a Matmul op, transposes applied."""
    batch, m, k = inputs[0].matrix
    if op.attr("transpose_a"):
        m, k = k, m
    n = inputs[1].matrix[1 if op.attr("transpose_b") else 2]
    return batch, m, k, n
