"""Ways to run the ops of a decode step: caches in DRAM, heads with one user on each core.

ttnn's rules (EXPERT 5): a cache is interleaved in DRAM and stays where it is; what is written into
it lies height-sharded, one user on each core; the queries of decode attention lie so too, or in
DRAM, and its result is interleaved in DRAM; joined heads are width-sharded, a head on each core.
"""

from __future__ import annotations

from collections.abc import Sequence

from temper.chips import Chip
from temper.placement.mode import ANY, DRAM_ONLY, Mode, Need, line
from temper.program.matmul_config import MatmulConfig, matmul_shape
from temper.program.op import Op
from temper.program.tensor import DRAM, TILE, Memory, TensorSpec, round_up

Specs = Sequence[TensorSpec]

DECODE = frozenset({
    "FillCache", "UpdateCache", "SdpaDecode", "CreateQkvHeadsDecode", "ConcatHeadsDecode",
})  # fmt: skip


def users_on_cores(spec: TensorSpec, chip: Chip) -> Memory | None:
    """(1, users, heads, depth) with one user on each core; None where users outnumber cores."""
    if len(spec.shape) != 4 or spec.shape[0] != 1:
        return None
    _, users, heads, depth = spec.shape
    if users > chip.compute_cores:
        return None
    grid = line(users, chip.grid[0])
    return Memory("sram", "height", grid, (round_up(heads, TILE), round_up(depth, TILE)))


def decode_modes(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> list[Mode]:
    """The ways of one op of ``DECODE``."""
    rest: tuple[Need, ...] = (ANY,) * (len(inputs) - 1)
    if op.kind == "FillCache":
        return [Mode("in place", (DRAM_ONLY, *rest), (inputs[0].memory,))]
    if op.kind == "UpdateCache":
        new: Need = users_on_cores(inputs[1], chip) or ANY
        return [Mode("in place", (DRAM_ONLY, new, DRAM_ONLY), (inputs[0].memory,))]
    if op.kind == "SdpaDecode":
        queries: list[Need] = [DRAM_ONLY]
        on_cores = users_on_cores(inputs[0], chip)
        if on_cores is not None:
            queries.append(on_cores)
        return [
            Mode("dram" if need == DRAM_ONLY else "a user on each core",
                 (need, DRAM_ONLY, DRAM_ONLY, DRAM_ONLY), (DRAM,))
            for need in queries
        ]  # fmt: skip
    if op.kind == "CreateQkvHeadsDecode":
        made = [users_on_cores(spec, chip) for spec in outputs]
        memories = tuple(memory for memory in made if memory is not None)
        if len(memories) == len(made):
            return [Mode("a user on each core", (ANY,), memories)]
        return [Mode("dram", (ANY,), (DRAM,) * 3)]
    return _join(inputs[0], chip)


def _join(x: TensorSpec, chip: Chip) -> list[Mode]:
    on_cores = users_on_cores(x, chip)
    heads, depth = x.shape[2], x.shape[3]
    if on_cores is not None and heads <= chip.compute_cores and depth % TILE == 0:
        shard = (round_up(x.shape[1], TILE), depth)
        wide = Memory("sram", "width", line(heads, chip.grid[0]), shard)
        return [Mode("a head on each core", (on_cores,), (wide,))]
    return [Mode("dram", (ANY,), (DRAM,))]


def rotary_modes(inputs: Specs, outputs: Specs, chip: Chip) -> list[Mode]:
    """Rotation of heads with one user on each core, cosines and sines beside them.

    A position for each user is what ttnn takes only so; empty for any other rotation.
    """
    if len(inputs[0].shape) != 4 or inputs[1].shape[2:3] != (1,) or inputs[0].shape[2] == 1:
        return []
    memories = [users_on_cores(spec, chip) for spec in (*inputs, *outputs)]
    if any(memory is None for memory in memories) or inputs[1].shape[1] != inputs[0].shape[1]:
        return []
    needs = tuple(memory for memory in memories if memory is not None)
    return [Mode("a user on each core", needs[:3], (needs[3],))]


def dram_sharded_mode(op: Op, inputs: Specs) -> Mode:
    """The one way to run a matmul with this config."""
    config = MatmulConfig.from_attrs(op.attr("config"))
    _, _, k, _ = matmul_shape(op, inputs)
    given = Memory("sram", "width", config.grid, (TILE, k // config.cores))
    made = Memory("sram", "width", config.grid, (TILE, config.per_core_n * TILE))
    return Mode("dram shards", (given, inputs[1].memory), (made,))
