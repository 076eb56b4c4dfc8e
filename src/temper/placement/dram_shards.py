"""Weights of decode matmuls over the DRAM banks: each bank's neighbours stream its own columns.

A matmul of one row of tiles is bound by reading its weight once. With the weight width-sharded
over the banks every bank is read in one long stream (EXPERT 4.2: 241 to 247 GB/s on Wormhole, 460
to 497 on Blackhole, against 143 to 217 and at most 415 of the multicast). The rules of ttnn: in0
width-sharded in SRAM with whole tiles of K on each core, the result on the same cores, K undivided.
Weights are placed so from the host; nothing is moved at run time.
"""

from __future__ import annotations

from dataclasses import replace

from temper.chips import Chip
from temper.placement.decode_modes import dram_sharded_mode
from temper.placement.mode import Mode
from temper.placement.modes import modes
from temper.placement.pieces import Meter, Piece, attrs_key
from temper.program.matmul_config import DRAM_SHARDED, MatmulConfig, matmul_shape
from temper.program.op import Op
from temper.program.program import Program
from temper.program.tensor import TILE, Memory, TensorSpec, ceil_div, divisors, round_up

# Wider blocks of K gain nothing more (EXPERT 4.2).
_WIDEST_BLOCK = 16
# Shards of the result feed the next op; elsewhere they would have to be made first.
_SAVED_MOVE_NS = 4000.0


def shard_weights(program: Program, meter: Meter) -> Program:
    """The program with those decode weights over the banks that are read faster so."""
    constant = {*program.weights, *(o for op in program.const_ops for o in op.outputs)}
    readers: dict[str, int] = {}
    for op in (*program.const_ops, *program.ops):
        for name in op.inputs:
            readers[name] = readers.get(name, 0) + 1
    values, ops = dict(program.values), list(program.ops)
    for index, op in enumerate(program.ops):
        if op.kind != "Matmul" or op.inputs[1] not in constant or readers[op.inputs[1]] != 1:
            continue
        found = _sharded(op, program, meter)
        if found is not None:
            ops[index], values[op.inputs[1]] = found
    return program.replace(values=values, ops=tuple(ops))


def _sharded(op: Op, program: Program, meter: Meter) -> tuple[Op, TensorSpec] | None:
    inputs, outputs = program.input_specs(op), program.output_specs(op)
    if not _suits(op, inputs):
        return None
    best, best_ns = None, _plain_ns(op, inputs, outputs, meter) + _SAVED_MOVE_NS
    for chosen, mode, weight in _candidates(op, inputs, outputs, meter.chip):
        a, b = inputs[0].with_memory(mode.inputs[0]), weight  # type: ignore[arg-type]
        made = (outputs[0].with_memory(mode.outputs[0]),)
        piece = Piece(chosen, attrs_key(chosen), (0, 1), (a, b), made, main=True)
        time_ns, circular = meter.measure(piece)
        room = meter.chip.sram_usable_bytes - 3 * (meter.sram_bytes(a) + meter.sram_bytes(made[0]))
        if circular <= room and time_ns < best_ns:
            best, best_ns = (chosen, weight), time_ns
    return best


def _suits(op: Op, inputs: list[TensorSpec]) -> bool:
    """One row of tiles, whole tiles of K and N, no bias (it is distrusted inside this matmul)."""
    a, b = inputs[0], inputs[1]
    rows = a.physical_2d[0]
    flags = op.attr("transpose_a") or op.attr("transpose_b") or op.attrs.get("config")
    return (
        len(inputs) == 2
        and not flags
        and rows == TILE
        and b.matrix[0] == 1
        and a.matrix[2] % TILE == 0
        and b.matrix[2] % TILE == 0
        and all(s.layout == "tile" for s in inputs)
    )


def _plain_ns(op: Op, inputs: list[TensorSpec], outputs: list[TensorSpec], meter: Meter) -> float:
    """The best other way, its operands where it wants them."""
    best = float("inf")
    for mode in modes(op, inputs, outputs, meter.chip, sram=True):
        chosen = op.with_attrs(**mode.attrs) if mode.attrs else op
        specs = tuple(
            spec.with_memory(need) if isinstance(need, Memory) else spec
            for spec, need in zip(inputs, mode.inputs, strict=True)
        )
        made = (outputs[0].with_memory(mode.outputs[0]),)
        piece = Piece(chosen, attrs_key(chosen), (0, 1), specs, made, main=True)
        best = min(best, meter.measure(piece)[0])
    return best


def _candidates(
    op: Op, inputs: list[TensorSpec], outputs: list[TensorSpec], chip: Chip
) -> list[tuple[Op, Mode, TensorSpec]]:
    _, _, k, n = matmul_shape(op, inputs)
    kt, nt = k // TILE, n // TILE
    banks = chip.dram_banks
    shard = (k, round_up(nt, banks) // banks * TILE)
    weight = replace(inputs[1], memory=Memory("dram", "width", (banks, 1), shard))
    found = []
    for cores in divisors(kt):
        grid = rectangle(cores, chip)
        if grid is None or cores < 2:
            continue
        block = max(d for d in divisors(kt // cores) if d <= _WIDEST_BLOCK)
        config = MatmulConfig(
            DRAM_SHARDED, grid, block, per_core_m=1, per_core_n=ceil_div(nt, cores), cores=cores,
            out_block_w=ceil_div(nt, cores),
        )  # fmt: skip
        chosen = op.with_attrs(config=config.to_attrs())
        mode = dram_sharded_mode(chosen, [inputs[0], weight])
        found.append((chosen, mode, weight))
    return found


def rectangle(cores: int, chip: Chip) -> tuple[int, int] | None:
    """Cores as whole rows of the grid, widest first; None where they form none."""
    across, down = chip.grid
    for width in range(min(across, cores), 0, -1):
        if cores % width == 0 and cores // width <= down:
            return width, cores // width
    return None
