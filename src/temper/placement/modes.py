"""The ways to run an op: which memory its operands may lie in and where its results go.

Without SRAM placement every op has one way, interleaved in DRAM, except windows, which ttnn
shards by itself. With it each op may also read and write SRAM, interleaved or sharded, as far as
ttnn's kernels allow: elementwise ops on equal shards, matmuls on shards of their first operand,
norms on block and width shards, windows on all three schemes, joined columns on height shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from temper.chips import Chip
from temper.placement.decode_modes import (
    DECODE,
    decode_modes,
    dram_sharded_mode,
    rotary_modes,
)
from temper.placement.mode import ANY, DRAM_ONLY, Mode, Need, line
from temper.placement.window_modes import needs_move, window_configs
from temper.program.attention_config import configs as attention_configs
from temper.program.conv_config import even_split
from temper.program.matmul_config import (
    DRAM_SHARDED,
    MULTI_CORE,
    REUSE_1D,
    MatmulConfig,
    matmul_shape,
)
from temper.program.matmul_config import choose as choose_matmul
from temper.program.op import Op
from temper.program.tensor import DRAM, HOST, SRAM, TILE, Memory, TensorSpec, ceil_div, is_view

Specs = Sequence[TensorSpec]
_ANY, _DRAM_ONLY, _line = ANY, DRAM_ONLY, line

_ELEMENTWISE = frozenset({"Unary", "BinaryNg", "Typecast"})
# Rows of shards start at multiples of what the NoC takes at once.
_TRANSFER_BYTES = 16
WINDOWS = frozenset({"Conv2d", "ConvTranspose2d", "Pool2d"})


def modes(
    op: Op,
    inputs: Specs,
    outputs: Specs,
    chip: Chip,
    *,
    sram: bool,
    level: int = 2,
    wanted: Sequence[Memory] = (),
) -> list[Mode]:
    """All ways to run the op with its operands where they are now.

    Level 0 leaves the block sizes of attention to ttnn. ``wanted`` are shards that readers of the
    result could take as they are.
    """
    if inputs and inputs[0].memory.buffer == "host" and op.kind in ("FoldImage", "Reshape"):
        return _uploads(op, outputs[0], wanted if sram else ())
    if any(spec.memory.buffer == "host" for spec in outputs) or op.kind == "Host":
        kept = tuple(s.memory if s.memory.buffer == "host" else DRAM for s in outputs)
        return [Mode("host", (_DRAM_ONLY,) * len(inputs), kept)]
    if op.kind in WINDOWS:
        found = _window_modes(op, inputs, outputs, chip, sram)
        if found:
            return found
    if op.kind in DECODE:
        return decode_modes(op, inputs, outputs, chip)
    if op.kind == "Matmul":
        return _matmul_modes(op, inputs, outputs, chip, sram)
    found = _interleaved(op, inputs, outputs, sram)
    if op.kind == "ScaleMask":
        return [Mode("dram", (_DRAM_ONLY,), (DRAM,))]
    if op.kind == "Sdpa" and len(inputs) > 3:  # ttnn reads masks from DRAM only
        found = [replace(m, inputs=(*m.inputs[:3], _DRAM_ONLY)) for m in found]
    if op.kind == "RotaryEmbedding":
        return rotary_modes(inputs, outputs, chip) or found
    if op.kind == "Sdpa" and level and not op.attr("config"):
        return _attention_modes(op, inputs, outputs, chip, found)
    if op.kind == "Embeddings" and sram and inputs[1].format == "bfloat16":
        # A small table that is read often is worth a copy; ttnn looks up in bfloat16 only.
        found += [replace(m, name=f"table in sram, {m.name}", inputs=(_ANY, SRAM)) for m in found]
    if sram and op.kind in ("Tilize", "Untilize"):
        found += _relayout_modes(inputs[0], outputs[0], chip)
    if sram and op.kind == "Concat":
        found += _concat_modes(op, inputs, outputs[0], chip)
    if sram and all(s.layout == "tile" for s in (*inputs, *outputs)):
        if op.kind in _ELEMENTWISE or _view(op, inputs, outputs):
            found += _elementwise_modes(inputs, outputs, chip)
        elif op.kind == "LayerNorm":
            found += _norm_modes(op, inputs, outputs, chip)
    return found


def _uploads(op: Op, out: TensorSpec, wanted: Sequence[Memory]) -> list[Mode]:
    """An input that the host works on: it goes to DRAM, into a reader's shards, or stays."""
    found = [Mode("dram", (_ANY,), (DRAM,))]
    if op.kind == "FoldImage" and out.layout == "row_major":
        found.append(Mode("host", (_ANY,), (HOST,)))
    if op.kind == "Reshape":
        found += [Mode(memory.sharding, (_ANY,), (memory,)) for memory in wanted]
    return found


def _view(op: Op, inputs: Specs, outputs: Specs) -> bool:
    """A reshape that moves nothing when both sides lie in the same memory."""
    return op.kind == "Reshape" and is_view(inputs[0].with_memory(outputs[0].memory), outputs[0])


def _interleaved(op: Op, inputs: Specs, outputs: Specs, sram: bool) -> list[Mode]:
    need: tuple[Need, ...] = (_ANY,) * len(inputs)
    found = [Mode("dram", need, (DRAM,) * len(outputs))]
    if sram:
        found.append(Mode("sram", need, (SRAM,) * len(outputs)))
    return found


def shardings(spec: TensorSpec, chip: Chip) -> list[Memory]:
    """The even height, width and block shardings of a tiled tensor."""
    rows, columns = spec.physical_2d
    rt, ct = ceil_div(rows, TILE), ceil_div(columns, TILE)
    across, down = chip.grid
    found = []
    cores = even_split(rt, across * down)
    if cores > 1:
        shard = (ceil_div(rt, cores) * TILE, ct * TILE)
        found.append(Memory("sram", "height", _line(cores, across), shard))
    cores = even_split(ct, across * down)
    if cores > 1:
        shard = (rt * TILE, ceil_div(ct, cores) * TILE)
        found.append(Memory("sram", "width", _line(cores, across), shard))
    grid = (even_split(ct, across), even_split(rt, down))
    if grid[0] > 1 and grid[1] > 1:
        shard = (ceil_div(rt, grid[1]) * TILE, ceil_div(ct, grid[0]) * TILE)
        found.append(Memory("sram", "block", grid, shard))
    return found


def _elementwise_modes(inputs: Specs, outputs: Specs, chip: Chip) -> list[Mode]:
    out = outputs[0]
    same = [spec.physical_2d == out.physical_2d for spec in inputs]
    if not same or not same[0]:
        return []
    wanted = [s.memory for s, equal in zip(inputs, same, strict=True) if equal and s.memory.sharded]
    found = []
    for memory in dict.fromkeys([*wanted, *shardings(out, chip)]):
        need: tuple[Need, ...] = tuple(memory if equal else "interleaved" for equal in same)
        found.append(Mode(memory.sharding, need, (memory,)))
    return found


def _relayout_modes(x: TensorSpec, out: TensorSpec, chip: Chip) -> list[Mode]:
    """Tilize and untilize of height shards in place: whole tiles of whole rows."""
    tiled = out if out.layout == "tile" else x
    rows, columns = tiled.physical_2d
    if x.physical_2d != (rows, columns) or out.physical_2d != (rows, columns):
        return []  # padding appears or goes
    here = [x.memory] if x.memory.sharded else []
    found = []
    for memory in dict.fromkeys([*here, *shardings(tiled, chip)]):
        if memory.sharding == "height" and memory.shard is not None and not memory.shard[0] % TILE:
            found.append(Mode(memory.sharding, (memory,), (memory,)))
    return found


def _concat_modes(op: Op, inputs: Specs, out: TensorSpec, chip: Chip) -> list[Mode]:
    """Columns side by side in height shards of the same rows: whole tiles, or whole transfers."""
    rows = out.physical_2d[0]
    tiled = out.layout == "tile"
    grain = TILE if tiled else round(_TRANSFER_BYTES / out.element_bytes)
    if op.attr("dim") % len(out.shape) != len(out.shape) - 1:
        return []
    if any(s.physical_2d[0] != rows or s.matrix[2] % grain for s in inputs):
        return []
    lie = [*(spec.memory for spec in inputs), *(shardings(out, chip) if tiled else [])]
    found = []
    for grid, high in dict.fromkeys(
        (m.grid, m.shard[0]) for m in lie if m.sharding == "height" and m.shard is not None
    ):
        need, made = (
            tuple(Memory("sram", "height", grid, (high, s.physical_2d[1])) for s in specs)
            for specs in (inputs, (out,))
        )
        found.append(Mode("height", need, made))
    return found


def _attention_modes(
    op: Op, inputs: Specs, outputs: Specs, chip: Chip, places: list[Mode]
) -> list[Mode]:
    """Every block size that fits in SRAM, for every place of the result."""
    found = [
        replace(place, attrs={"config": config})
        for config in attention_configs(op, inputs, outputs, chip)
        for place in places
    ]
    return found or places


def _norm_modes(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> list[Mode]:
    x = inputs[0]
    if x.matrix[2] % TILE:
        return []
    names = op.attr("operands")
    found = []
    candidates = [x.memory] if x.memory.sharded else []
    for memory in dict.fromkeys([*candidates, *shardings(x, chip)]):
        if memory.sharding == "height":
            continue
        need: tuple[Need, ...] = tuple(
            memory if name in ("x", "residual") else "interleaved" for name in names
        )
        if len(need) == len(inputs):
            found.append(Mode(memory.sharding, need, (memory,) * len(outputs)))
    return found


def _matmul_modes(op: Op, inputs: Specs, outputs: Specs, chip: Chip, sram: bool) -> list[Mode]:
    rest: tuple[Need, ...] = (_ANY,) * (len(inputs) - 1)
    plain: tuple[Need, ...] = (_ANY, *rest)
    if (op.attrs.get("config") or {}).get("name") == DRAM_SHARDED:
        return [dram_sharded_mode(op, inputs)]
    if op.attrs.get("config"):  # chosen by hand: it stays
        return _interleaved(op, inputs, outputs, sram)

    def config(a: TensorSpec, out: Memory, grid: tuple[int, int] | None = None) -> MatmulConfig:
        batch, m, k, n = matmul_shape(op, inputs)
        found = choose_matmul(
            batch, m, k, n, a, inputs[1], outputs[0].with_memory(out), chip,
            fp32_acc=op.attr("fp32_acc"), core_grid=grid,
            bias_format=inputs[2].format if len(inputs) > 2 else None,
        )  # fmt: skip
        more = len(inputs) > 2 or op.attr("activations")
        if found.name == MULTI_CORE and more and grid is None and inputs[1].matrix[0] == 1:
            # The simplest program would run bias and activation as ops of their own.
            return config(a, out, chip.grid)
        return found

    def mode(name: str, need: tuple[Need, ...], out: Memory, chosen: MatmulConfig) -> Mode:
        return Mode(name, need, (out,), {"config": chosen.to_attrs()})

    # Sharded operands are moved to SRAM first; the config is that of an interleaved operand.
    a = inputs[0] if not inputs[0].memory.sharded else inputs[0].with_memory(SRAM if sram else DRAM)
    found = [mode("dram", plain, DRAM, config(a, DRAM))]
    if not sram:
        return found
    on_grid = config(a, SRAM, chip.grid)
    found.append(mode("sram", plain, SRAM, config(a, SRAM)))
    found.append(mode("sram grid", plain, SRAM, on_grid))
    found.append(mode("dram grid", plain, DRAM, config(a, DRAM, chip.grid)))
    tiled = all(s.layout == "tile" for s in (*inputs, *outputs))
    if not tiled or inputs[1].matrix[0] > 1 or op.attr("transpose_a"):
        return found
    out_shards = _shards_of(on_grid, outputs[0])
    if out_shards is not None:
        found.append(mode(f"to {out_shards.sharding}", plain, out_shards, on_grid))
    starts = [inputs[0].memory] if inputs[0].memory.sharded else []
    for memory in dict.fromkeys([*starts, *shardings(inputs[0], chip)]):
        chosen = config(inputs[0].with_memory(memory), SRAM)
        need: tuple[Need, ...] = (memory, *rest)
        kept = _shards_of(chosen, outputs[0])
        if kept is not None and kept.sharding == memory.sharding:
            found.append(
                mode(memory.sharding, need, kept, config(inputs[0].with_memory(memory), kept))
            )
        found.append(mode(f"{memory.sharding} to dram", need, DRAM, chosen))
    return found


def _shards_of(config: MatmulConfig, out: TensorSpec) -> Memory | None:
    """The output shards that a multicast config writes without moving data."""
    if config.name == MULTI_CORE or not config.fuse_batch:
        return None
    rows, columns = out.physical_2d
    shard = (config.per_core_m * TILE, config.per_core_n * TILE)
    across = ceil_div(columns, shard[1])
    down = ceil_div(rows, shard[0])
    if config.name == REUSE_1D:
        sharding: Literal["height", "width"] = "width" if config.mcast_in0 else "height"
        if sharding == "width" and shard[0] < rows:
            return None
        grid = _line(across if sharding == "width" else down, config.grid[0])
        return Memory("sram", sharding, grid, shard) if grid[1] <= config.grid[1] else None
    if across > config.grid[0] or down > config.grid[1] or across < 2 or down < 2:
        return None
    return Memory("sram", "block", (across, down), shard)


def _window_modes(op: Op, inputs: Specs, outputs: Specs, chip: Chip, sram: bool) -> list[Mode]:
    rest: tuple[Need, ...] = (_ANY,) * (len(inputs) - 1)
    found = []
    for config in window_configs(op, inputs, outputs, chip, every_scheme=sram):
        attrs: dict[str, Any] = {}
        if config.act_block_h * TILE < config.out_shard[0] and op.kind == "Conv2d":
            attrs["act_block_h"] = config.act_block_h * TILE
        moved = needs_move(config, inputs[0], outputs[0], chip, pool=op.kind == "Pool2d")
        found.append(Mode(config.sharding, (config.in_memory, *rest), (config.out_memory,), attrs,
                          config, moved))  # fmt: skip
    return found
