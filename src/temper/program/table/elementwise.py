"""Records of the ops that work value by value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from temper.chips import Chip
from temper.program.op import Op, OpKind, Specs, register
from temper.program.table.shared import entry_bytes, same_count, same_shape, two_tiles
from temper.program.tensor import TILE_BYTES
from temper.program.words import chain, data_type_of, memory_config


def _binary_shapes(op: Op, inputs: Specs, outputs: Specs) -> Iterator[str]:
    shape = broadcast([spec.shape for spec in inputs])
    if shape is None:
        yield f"shapes {' and '.join(str(list(s.shape)) for s in inputs)} do not broadcast"
    elif math.prod(shape) != math.prod(outputs[0].shape):
        yield f"the result is {list(outputs[0].shape)}, not {list(shape)}"


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


def _buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """Nothing when all operands are shards of one kind."""
    specs = (*inputs, *outputs)
    first = specs[0].memory
    if first.sharded and all(spec.memory == first for spec in specs):
        return 0
    return two_tiles(op, inputs, outputs, chip)


def _binary_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """As above; a broadcast operand is kept twice."""
    total = _buffers(op, inputs, outputs, chip)
    if total and len(inputs) == 2:
        rows, columns = outputs[0].matrix[1:]
        for spec in inputs:
            if spec.matrix[1:] != (rows, columns):
                total += 2 * entry_bytes(spec)
    if total and len(inputs) == 1 and op.attr("scalar") is not None:
        total += entry_bytes(inputs[0])
    # A function of an operand has a tile of its own in front of the binary one.
    for spec, chain_of in zip(inputs, (op.attr("lhs"), op.attr("rhs")), strict=False):
        total += entry_bytes(spec) if total and chain_of else 0
    return total


def _cast_buffers(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> int:
    """As above, of whole tiles for rows too."""
    if not _buffers(op, inputs, outputs, chip):
        return 0
    return 2 * sum(TILE_BYTES[spec.format] for spec in (*inputs, *outputs))


def _unary_words(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> dict[str, Any]:
    return {"op_chain": chain(op.attr("functions")), "output_dtype": data_type_of(outputs)}


def _subtile(inputs: Specs) -> str:
    """Which operand is stretched inside its tiles, in the profiler's words."""
    if len(inputs) < 2:
        return "NONE"
    sides = [(1, 1, *spec.shape)[-2:] for spec in inputs]
    low, high = (
        "".join(name for name, own, other in zip("AB", sizes, sizes[::-1], strict=True)
                if own == 1 < other)
        for sizes in zip(*sides, strict=True)
    )  # fmt: skip
    if low and low == high:
        return f"SCALAR_{low}"
    parts = [f"ROW_{low}"] * bool(low) + [f"COL_{high}"] * bool(high)
    return "_".join(parts) or "NONE"


def _binary_words(op: Op, inputs: Specs, outputs: Specs, chip: Chip) -> dict[str, Any]:
    fp32 = any(spec.format in ("float32", "int32", "uint32") for spec in inputs)
    return {
        "binary_op_type": f"BinaryOpType::{str(op.attr('function')).upper()}",
        "compute_kernel_config": "std::nullopt",
        "dtype": data_type_of(outputs),
        "input_dtype": data_type_of(inputs),
        "is_quant_op": False,
        "is_sfpu": fp32,
        "memory_config": memory_config(outputs[0].memory),
        "subtile_broadcast_type": f"SubtileBroadcastType::{_subtile(inputs)}",
        "worker_grid": f"{{[(x=0;y=0) - (x={chip.grid[0] - 1};y={chip.grid[1] - 1})]}}",
        "lhs_activations": chain(op.attr("lhs")),
        "rhs_activations": chain(op.attr("rhs")),
        "post_activations": chain(op.attr("post")),
        "scalar": "std::nullopt" if op.attr("scalar") is None else op.attr("scalar"),
    }


register(
    # functions: a chain.
    OpKind(
        "Unary",
        "unary",
        "UnaryDeviceOperation",
        ("x",),
        {"functions": []},
        shapes=same_count,
        buffers=_buffers,
        words=_unary_words,
    ),
    # b or scalar; broadcast as numpy does. lhs/rhs/post: chains applied to a, to b, to the result.
    OpKind(
        "BinaryNg",
        "binary",
        "BinaryNgDeviceOperation",
        ("a", "b?"),
        {
            "function": "add",
            "scalar": None,
            "scalar_first": False,
            "lhs": [],
            "rhs": [],
            "post": [],
            "into": None,  # operand, 0 or 1, whose memory takes the result; read here last
        },
        shapes=_binary_shapes,
        buffers=_binary_buffers,
        words=_binary_words,
    ),
    # The mask of an attention over its scale, as ttnn's attention wants it and makes it by itself;
    # the values here stay those of the mask, and Sdpa adds it to the scaled products.
    OpKind(
        "ScaleMask",
        "binary",
        "BinaryNgDeviceOperation",
        ("mask",),
        {
            "function": "mul",
            "scalar": 1.0,
            "scalar_first": False,
            "lhs": [],
            "rhs": [],
            "post": [],
            "into": None,
        },
        shapes=same_shape,
        buffers=_binary_buffers,
        words=_binary_words,
    ),
    # where(a, b, c), addcmul/addcdiv(a, b, c, value), lerp(a, b, c), clamp(a, b=min, c=max).
    OpKind(
        "Ternary",
        "ternary",
        "TernaryDeviceOperation",
        ("a", "b?", "c?"),
        {"function": "where", "value": None, "b_scalar": None, "c_scalar": None},
        buffers=_buffers,
    ),
    OpKind(
        "Typecast",
        "typecast",
        "TypecastDeviceOperation",
        ("x",),
        shapes=same_shape,
        buffers=_cast_buffers,
    ),
)
