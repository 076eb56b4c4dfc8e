"""What-ifs: changes to a program's records that the cost model can time again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from temper.formats import BLOCK_FORMATS
from temper.program import SRAM, Op, Program, TensorSpec, weights
from temper.program.compute_config import default_compute
from temper.program.tensor import TILE

# Ops that only change layout, memory or format of a value.
LAYOUT_FAMILIES = frozenset(
    {
        "tilize", "untilize", "interleaved_to_sharded", "sharded_to_interleaved", "reshard",
        "typecast", "permute", "transpose",
    }
)  # fmt: skip


def matmul_weights(program: Program) -> dict[str, list[int]]:
    """Weights that matmuls read, and which ops read them."""
    return {w.value: list(w.readers) for w in weights.matmul_weights(program)}


def with_weight_format(program: Program, fmt: str, only: set[str] | None = None) -> Program | None:
    """Matmul weights in a block format; None when no weight would get smaller."""
    changes = {}
    for name in matmul_weights(program):
        spec = program.spec(name)
        if only is not None and name not in only:
            continue
        smaller = replace(spec, format=fmt, layout="tile")
        if spec.format not in BLOCK_FORMATS or smaller.size_bytes < spec.size_bytes:
            changes[name] = smaller
    return _with_values(program, changes) if changes else None


def in_bfloat16(program: Program) -> Program | None:
    """Every float32 tensor in bfloat16, as if the model and its inputs had been cast."""
    changes = {
        name: replace(spec, format="bfloat16")
        for name, spec in program.values.items()
        if spec.format == "float32"
    }
    return _with_values(program, changes) if changes else None


def with_fidelity(program: Program, fidelity: str, above: frozenset[str]) -> Program | None:
    """Matrix ops that run at one of the ``above`` fidelities, at ``fidelity``."""

    def change(op: Op) -> Op:
        if op.info.matrix and op.attr("fidelity") in above:
            return op.with_attrs(fidelity=fidelity)
        return op

    return _with_ops(program, change)


def with_ttnn_compute(program: Program, arch: str) -> Program | None:
    """ttnn's own compute configs, as from level 1 on."""

    def change(op: Op) -> Op:
        config = default_compute(
            op.kind, program.input_specs(op), program.output_specs(op), arch, 1
        )
        return op.with_attrs(**config) if config else op

    return _with_ops(program, change)


def with_activations_in_sram(program: Program, index: int) -> Program | None:
    """One op with its inputs and outputs, weights apart, in interleaved SRAM."""
    op = program.ops[index]
    changes = {}
    for name in (*op.inputs, *op.outputs):
        spec = program.spec(name)
        if name not in program.weights and spec.memory.buffer == "dram":
            changes[name] = spec.with_memory(SRAM)
    return _with_values(program, changes) if changes else None


def with_double_batch(program: Program) -> Program | None:
    """Every activation twice as long in its first dimension, windows twice the batch."""
    if not program.inputs or not program.spec(program.inputs[0]).shape:
        return None
    batch = program.spec(program.inputs[0]).shape[0]
    fixed = set(program.weights)
    changes = {}
    for name, spec in program.values.items():
        if name in fixed or len(spec.shape) < 2 or spec.memory.sharded:
            continue
        if spec.shape[0] in (1, batch):
            changes[name] = replace(spec, shape=(2 * spec.shape[0], *spec.shape[1:]))
    doubled = _with_values(program, changes)

    def twice(op: Op) -> Op:
        if "batch" not in op.info.attrs:
            return op
        return op.with_attrs(batch=2 * op.attr("batch"))

    return _with_ops(doubled, twice) or doubled


def odd_dimensions(program: Program) -> list[int]:
    """Sizes above one tile that padding fills up, largest waste first."""
    waste: dict[int, float] = {}
    for op in program.ops:
        for spec in program.output_specs(op):
            if spec.layout != "tile" or len(spec.shape) < 2:
                continue
            volume = math.prod(spec.shape)
            for size in spec.shape[-2:]:
                if size > TILE and size % TILE:
                    lost = -size % TILE / size * volume
                    waste[size] = waste.get(size, 0.0) + lost
    return sorted(waste, key=lambda size: -waste[size])


def without_padding_of(program: Program, size: int) -> Program:
    """Every dimension of ``size`` cut to the multiple of 32 below it."""
    cut = size // TILE * TILE

    def fit(spec: TensorSpec) -> TensorSpec:
        shape = tuple(cut if n == size else n for n in spec.shape)
        return replace(spec, shape=shape) if shape != spec.shape else spec

    values = {n: fit(s) for n, s in program.values.items() if not s.memory.sharded}
    return _with_values(program, values)


def layout_chains(program: Program) -> list[int]:
    """Ops that change a layout right after another op changed it."""
    made_by = {name: i for i, op in enumerate(program.ops) for name in op.outputs}
    found: set[int] = set()
    for index, op in enumerate(program.ops):
        before = made_by.get(op.inputs[0]) if op.inputs else None
        if before is None or op.info.family not in LAYOUT_FAMILIES:
            continue
        if program.ops[before].info.family in LAYOUT_FAMILIES:
            found |= {before, index}
    return sorted(found)


def _with_values(program: Program, changes: Mapping[str, TensorSpec]) -> Program:
    return program.replace(values={**program.values, **changes})


def _with_ops(program: Program, change: Callable[[Op], Op]) -> Program | None:
    ops = tuple(change(op) for op in program.ops)
    pairs = zip(ops, program.ops, strict=True)
    same = all(new is old or new.attrs == old.attrs for new, old in pairs)
    return None if same else program.replace(ops=ops)


def option(meta: Mapping[str, Any], program: Program, name: str, default: Any = None) -> Any:
    """A compile option of a recorded program: given as a value or as [value, origin]."""
    options = meta.get("options") or program.options
    value = options.get(name, default) if isinstance(options, Mapping) else default
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 2 else value
