"""Checks of an op's shapes, formats and layouts: only rules that hold for every chip."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from temper.program.op import Op
from temper.program.tensor import TensorSpec

Specs = Sequence[TensorSpec]

_SAME_SHAPE = frozenset(
    {"Typecast", "Tilize", "Untilize", "Copy", "InterleavedToSharded", "ShardedToInterleaved",
     "Reshard", "Softmax", "CumSum"}
)  # fmt: skip
_SAME_COUNT = frozenset({"Reshape", "Unary"})


def shape_problems(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    """What cannot be true of these operands and results."""
    if not outputs:
        return
    if op.kind in _SAME_SHAPE and inputs and inputs[0].shape != outputs[0].shape:
        yield f"the result is {list(outputs[0].shape)}, the operand {list(inputs[0].shape)}"
    if op.kind in _SAME_COUNT and inputs:
        given, made = math.prod(inputs[0].shape), math.prod(outputs[0].shape)
        if given != made:
            yield f"the result has {made} values, the operand {given}"
    rule = _RULES.get(op.kind)
    if rule is not None:
        yield from rule(op, inputs, outputs)


def _matmul(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    if len(inputs) < 2:
        return
    a, b = inputs[0].shape, inputs[1].shape
    if len(a) < 1 or len(b) < 2:
        return
    k_a = a[-2] if op.attr("transpose_a") and len(a) > 1 else a[-1]
    k_b, n = (b[-1], b[-2]) if op.attr("transpose_b") else (b[-2], b[-1])
    if k_a != k_b:
        yield f"inner sizes differ: {k_a} of {list(a)} and {k_b} of {list(b)}"
    if outputs[0].shape and outputs[0].shape[-1] != n:
        yield f"the result is {outputs[0].shape[-1]} wide, not {n}"


def _binary(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    shape = broadcast([spec.shape for spec in inputs])
    if shape is None:
        yield f"shapes {' and '.join(str(list(s.shape)) for s in inputs)} do not broadcast"
    elif math.prod(shape) != math.prod(outputs[0].shape):
        yield f"the result is {list(outputs[0].shape)}, not {list(shape)}"


def _concat(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    given = sum(math.prod(spec.shape) for spec in inputs)
    if given != math.prod(outputs[0].shape):
        yield f"the result has {math.prod(outputs[0].shape)} values, the operands {given}"


def _permute(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    shape, dims = inputs[0].shape if inputs else (), list(op.attr("dims"))
    if sorted(d % len(shape) if shape else d for d in dims) != list(range(len(shape))):
        yield f"{dims} is no order of {len(shape)} dimensions"
    elif tuple(shape[d] for d in dims) != outputs[0].shape:
        yield f"the result is {list(outputs[0].shape)}, not {[shape[d] for d in dims]}"


def _tilize(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    if outputs[0].layout != "tile":
        yield "the result of Tilize is not in tiles"


def _untilize(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    if outputs[0].layout != "row_major":
        yield "the result of Untilize is not row-major"


def _to_sharded(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    if not outputs[0].memory.sharded:
        yield f"the result of {op.kind} is not sharded"


def _to_interleaved(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    if outputs[0].memory.sharded:
        yield f"the result of {op.kind} is sharded"


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The common shape by numpy's rule, or None."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for index, size in enumerate(shape, start=rank - len(shape)):
            if size != 1 and result[index] not in (1, size):
                return None
            if size != 1:
                result[index] = size
    return tuple(result)


_RULES: Mapping[str, Callable[[Op, Specs, Specs], Iterator[str]]] = {
    "Matmul": _matmul,
    "BinaryNg": _binary,
    "Concat": _concat,
    "Permute": _permute,
    "Tilize": _tilize,
    "Untilize": _untilize,
    "InterleavedToSharded": _to_sharded,
    "Reshard": _to_sharded,
    "ShardedToInterleaved": _to_interleaved,
}
