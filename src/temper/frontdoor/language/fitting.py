"""The longest context that fits: the memory walk over the step with caches of other lengths."""

from __future__ import annotations

from collections.abc import Mapping

from temper import chips
from temper.errors import OutOfMemoryError
from temper.options import Options
from temper.program import Program
from temper.program.simulate import DoesNotFit, walk
from temper.program.tensor import TILE, TensorSpec
from temper.program.trace_size import region_for, trace_bytes


def longest_context(program: Program, options: Options, now: int, most: int) -> int:
    """Tokens for each user, at most ``most``, that fit beside weights and activations; 0 for none.

    The program's caches hold ``now`` tokens; nothing but their length is varied.
    """
    chip = chips.get(program.chip)
    region = options["trace_region_size"] or 0
    if options["enable_trace"] and not region:
        region = region_for(trace_bytes(program, chip), chip)
    low, high = 0, most // TILE + 1
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(with_context(program, now, middle * TILE), region):
            low = middle
        else:
            high = middle
    return low * TILE


def with_context(program: Program, before: int, after: int) -> Program:
    """The program with caches, and tables of positions, of another length."""
    caches = {*program.state, *(o for op in program.ops if op.info.in_place for o in op.outputs)}
    constant = {*program.weights, *(o for op in program.const_ops for o in op.outputs)}
    values: Mapping[str, TensorSpec] = {
        name: _longer(spec, 2 if name in caches else 0, before, after)
        if name in caches or (name in constant and spec.shape[:1] == (before,))
        else spec
        for name, spec in program.values.items()
    }
    return program.replace(values=values)


def _longer(spec: TensorSpec, dim: int, before: int, after: int) -> TensorSpec:
    if len(spec.shape) <= dim or spec.shape[dim] != before:
        return spec
    shape = (*spec.shape[:dim], after, *spec.shape[dim + 1 :])
    return TensorSpec(shape, spec.format, spec.layout, spec.memory)


def _fits(program: Program, region: int) -> bool:
    try:
        walk(program, chips.get(program.chip), trace_region_bytes=region)
    except (DoesNotFit, OutOfMemoryError):
        return False
    return True
