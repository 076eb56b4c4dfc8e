"""Which sharding schemes a convolution or pool can run with on a chip's SRAM."""

from __future__ import annotations

from collections.abc import Sequence

from temper.chips import Chip
from temper.program.allocator import DEFAULT_L1_SMALL_BYTES
from temper.program.conv_config import ConvConfig, Window, choose, shard_bytes, window_of
from temper.program.op import Op
from temper.program.tensor import TILE, TILE_BYTES, Sharding, TensorSpec, ceil_div

Specs = Sequence[TensorSpec]
# Share of SRAM that one window may use by itself; the rest covers alignment.
_WINDOW_SHARE = 0.95
_SCHEMES: tuple[Sharding, ...] = ("height", "block", "width")


def window_configs(
    op: Op, inputs: Specs, outputs: Specs, chip: Chip, *, every_scheme: bool
) -> list[ConvConfig]:
    """Configs that fit: ttnn's own choice, or every scheme, smaller activation blocks if needed.

    A 1x1 convolution that is a matmul has none: it runs interleaved.
    """
    window = window_of(op)
    if window.is_matmul:
        return []
    out = outputs[0]
    first = _choose(op, window, inputs, out, chip, None, 0).sharding
    ordered = [first, *(scheme for scheme in _SCHEMES if scheme != first)]
    fitted = [_fitted(op, window, inputs, out, chip, scheme) for scheme in ordered]
    found = [config for config in fitted if config is not None]
    if not every_scheme:
        return found[:1]  # ttnn takes its first choice; another stands in when it does not fit
    kept = _adopted(op, window, inputs, out, chip)
    unique: dict[tuple[object, ...], ConvConfig] = {}
    wide = [kept, *found] if kept else found
    for config in [*wide, *(_narrow(op, window, inputs, out, chip, c) for c in wide)]:
        unique.setdefault((config.in_memory, config.out_memory, config.act_block_h), config)
    return [c for c in unique.values() if _keeps_cores(c, kept, window, inputs[0])]


def _keeps_cores(
    config: ConvConfig, kept: ConvConfig | None, window: Window, x: TensorSpec
) -> bool:
    """Whether ttnn gives these output shards to an operand that is sharded already.

    It keeps the operand's cores, unless a convolution is told to reshard it; a pool never is.
    """
    if window.pool and config.sharding == "block" and config.in_grid[0] == 1:
        return False  # one column of cores is height shards, and ttnn makes those
    if not x.memory.sharded:
        return True
    if config.in_memory == x.memory:
        return kept is not None and config.out_memory == kept.out_memory
    rows = ceil_div(window.in_rows, config.in_shard[0])
    return not window.pool or rows == ceil_div(window.out_rows, config.out_shard[0])


def _narrow(
    op: Op, window: Window, inputs: Specs, out: TensorSpec, chip: Chip, config: ConvConfig
) -> ConvConfig:
    """The same with the smallest activation block, for when other tensors need the room."""
    if window.pool or op.kind != "Conv2d" or config.act_block_h == 1:
        return config
    split = _split_of(inputs[0]) if config.in_memory == inputs[0].memory else None
    return _choose(op, window, inputs, out, chip, config.sharding, TILE, split)


def own_peak_bytes(config: ConvConfig, x: TensorSpec, out: TensorSpec, *, pool: bool) -> int:
    """SRAM of a core that the window needs by itself: input and halo, then halo and output."""
    shard, halo, result = _own_bytes(config, x, out, pool=pool)
    return max(shard + halo, halo + result + config.circular_bytes)


def needs_move(
    config: ConvConfig, x: TensorSpec, out: TensorSpec, chip: Chip, *, pool: bool
) -> bool:
    """Whether the halo must be moved up before the window runs.

    The input above the halo leaves a hole. A result that fits there takes it; a larger one goes
    below the halo, and where circular buffers have no room left under both, ttnn moves the halo.
    """
    shard, halo, result = _own_bytes(config, x, out, pool=pool)
    below = result if result > shard else 0
    return shard + halo + below + config.circular_bytes > _budget(chip)


def _budget(chip: Chip) -> float:
    """Bytes per core that one window may use: what the region of index tables leaves."""
    room = chip.sram_usable_bytes
    return min(room * _WINDOW_SHARE, room - DEFAULT_L1_SMALL_BYTES)


def _own_bytes(
    config: ConvConfig, x: TensorSpec, out: TensorSpec, *, pool: bool
) -> tuple[int, int, int]:
    """Bytes of a core's shard of the input, the halo and the result."""
    halo = shard_bytes(config.halo_shard, x.format)
    if x.layout == "tile":
        tiles = ceil_div(config.in_shard[0], TILE) * ceil_div(config.in_shard[1], TILE)
        shard = tiles * TILE_BYTES[x.format]
    else:
        shard = shard_bytes(config.in_shard, x.format)
    if out.layout != "tile":
        result = shard_bytes(config.out_shard, out.format)
    else:
        tiles = ceil_div(config.out_shard[0], TILE) * ceil_div(config.out_shard[1], TILE)
        result = tiles * TILE_BYTES[out.format]
    return shard, halo, result


def _fitted(
    op: Op,
    window: Window,
    inputs: Specs,
    out: TensorSpec,
    chip: Chip,
    sharding: Sharding,
    split: tuple[int, int] | None = None,
) -> ConvConfig | None:
    """The scheme with the largest activation block that fits, or None."""
    budget = _budget(chip)
    config = _choose(op, window, inputs, out, chip, sharding, 0, split)
    if window.pool or op.kind != "Conv2d":
        fits = own_peak_bytes(config, inputs[0], out, pool=window.pool) <= budget
        return config if fits else None
    block = config.act_block_h
    while own_peak_bytes(config, inputs[0], out, pool=False) > budget:
        smaller = [d for d in range(1, block) if config.act_block_h % d == 0]
        if not smaller:
            return None
        block = smaller[-1]
        config = _choose(op, window, inputs, out, chip, sharding, block * TILE, split)
    return config


def _adopted(
    op: Op, window: Window, inputs: Specs, out: TensorSpec, chip: Chip
) -> ConvConfig | None:
    """The config of an operand that is sharded already and can stay as it is."""
    memory = inputs[0].memory
    if not memory.sharded or memory.shard is None:
        return None
    split = _split_of(inputs[0])
    if memory.sharding == "block" and split[1] > chip.grid[0]:
        return None
    config = _fitted(op, window, inputs, out, chip, memory.sharding, split)
    if config is None or config.in_memory != memory:
        return None
    # The result keeps the operand's cores, those too that would have no rows.
    return config if ceil_div(window.out_rows, config.out_shard[0]) == split[0] else None


def _split_of(spec: TensorSpec) -> tuple[int, int]:
    """Shards of a tensor along its rows and along its columns."""
    rows, columns = spec.physical_2d
    assert spec.memory.shard is not None
    return ceil_div(rows, spec.memory.shard[0]), ceil_div(columns, spec.memory.shard[1])


def _choose(
    op: Op,
    window: Window,
    inputs: Specs,
    out: TensorSpec,
    chip: Chip,
    sharding: Sharding | None,
    act_block_h: int,
    split: tuple[int, int] | None = None,
) -> ConvConfig:
    pool = window.pool
    asked = op.attr("act_block_h") if op.kind == "Conv2d" else 0
    return choose(
        window, inputs[0], out, chip, sharding=sharding, split=split,
        weight_format="bfloat16" if pool else inputs[1].format,
        bias=not pool and len(inputs) > 2,
        fp32_acc=not pool and op.attr("fp32_acc") and op.attr("packer_l1_acc"),
        act_block_h=act_block_h or asked,
    )  # fmt: skip
