"""Out-of-memory errors with the arithmetic, what stops the program, and three ways out."""

from __future__ import annotations

from temper.chips import CHIPS, Chip
from temper.errors import OutOfMemoryError
from temper.program.allocator import count, tensor_bank_bytes
from temper.program.program import Program
from temper.program.simulate import DoesNotFit, resident_values
from temper.program.tensor import TILE_BYTES, TensorSpec


def explain_sram(stop: DoesNotFit, program: Program, chip: Chip, level: int) -> OutOfMemoryError:
    """An op whose circular buffers and shards exceed a core."""
    batch = _batch(program)
    ways = [f"a batch below {batch}" if batch > 1 else "a smaller input"]
    if level >= 2:
        ways.append("optimization_level=1")
    ways.append("bfloat8_b activations (activation_dtype=bfp_bf8)")
    roomier = [c.name for c in CHIPS.values() if c.sram_usable_bytes > chip.sram_usable_bytes]
    if roomier:
        ways.append(f"chip={roomier[-1]}")
    return OutOfMemoryError(
        stop.error.what, **{**stop.error.details, "at": _where(stop), "try_": ways[:3]}
    )


def explain_dram(
    stop: DoesNotFit, program: Program, chip: Chip, trace_region_bytes: int
) -> OutOfMemoryError:
    """Weights, inputs and activations that exceed the banks."""
    resident = resident_values(program)
    weights = sum(tensor_bank_bytes(program.spec(n), chip) for n in resident) * chip.dram_banks
    inputs = sum(tensor_bank_bytes(program.spec(n), chip) for n in program.inputs) * chip.dram_banks
    have = chip.dram_banks * chip.dram_bank_bytes
    name = next(iter(stop.op.outputs), stop.op.kind)
    spec = program.values.get(name)
    need = tensor_bank_bytes(spec, chip) * chip.dram_banks if spec is not None else 0
    ways = []
    smaller = _with_format(program, resident, "bfloat8_b", chip)
    if smaller < weights:
        ways.append(f"experimental_weight_dtype=bfp_bf8 (weights {_gb(smaller)} GB)")
    batch = _batch(program)
    ways.append(f"a batch below {batch}" if batch > 1 else "a shorter input")
    bigger = [
        c.name for c in CHIPS.values() if c.dram_banks * c.dram_bank_bytes > max(have, weights)
    ]
    if bigger:
        ways.append(f"chip={bigger[-1]}")
    else:
        ways.append("experimental_weight_dtype=bfp_bf4")
    return OutOfMemoryError(
        f"{name} does not fit in the DRAM of {chip.name}.",
        needs=(
            f"{count(need)} B for it beside {count(weights)} B weights, {count(inputs)} B inputs "
            f"and {count(trace_region_bytes)} B trace region; the banks have {count(have)} B"
        ),
        banks=stop.error.details.get("needs"),
        held=stop.error.details.get("held"),
        try_=ways,
    )


def _with_format(program: Program, names: list[str], fmt: str, chip: Chip) -> int:
    total = 0
    for name in names:
        spec = program.spec(name)
        if TILE_BYTES[fmt] < TILE_BYTES[spec.format]:
            spec = TensorSpec(spec.shape, fmt, "tile", spec.memory)
        total += tensor_bank_bytes(spec, chip) * chip.dram_banks
    return total


def _batch(program: Program) -> int:
    shapes = [program.spec(name).shape for name in program.inputs if name in program.values]
    return max((shape[0] for shape in shapes if len(shape) > 1), default=1)


def _where(stop: DoesNotFit) -> str:
    source = stop.op.source
    place = f" ({source.file}:{source.line})" if source.file else ""
    return f"op {stop.index}, {stop.op.kind}{place}"


def _gb(value: int) -> str:
    return f"{value / 1e9:.2f}"
