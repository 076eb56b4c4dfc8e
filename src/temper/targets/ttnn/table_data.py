"""Elementwise ops, data movement, lookups, layouts and moves between memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temper.program.tensor import INTEGER_FORMATS
from temper.targets.ttnn.expressions import DEVICE, Make, dtype, layout
from temper.targets.ttnn.table import OpRow, call, chain, refused

_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "pow": "pow",
    "maximum": "maximum", "minimum": "minimum", "fmod": "fmod", "remainder": "remainder",
    "floor_divide": "floor_div", "trunc_divide": "div_trunc", "atan2": "atan2", "hypot": "hypot",
    "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    "logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor",
    "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
    "shift_left": "bitwise_left_shift", "shift_right": "bitwise_right_shift",
    "logaddexp": "logaddexp", "xlogy": "xlogy", "squared_difference": "squared_difference",
}  # fmt: skip

_CHAINS = (
    ("input_tensor_a_activations", "lhs"),
    ("input_tensor_b_activations", "rhs"),
    ("activations", "post"),
)


@call("Unary")
def unary(row: OpRow) -> Make:
    """The chain of functions as nested calls of ttnn."""
    functions = chain(row, row.attr("functions"))
    if not functions:
        return Make("ttnn.clone", (row.ref(0),), {"memory_config": row.memory})
    return Make("ttnn.unary_chain", (row.ref(0), functions), {"memory_config": row.memory})


@call("BinaryNg")
def binary(row: OpRow) -> Make:
    """The function of two operands by ttnn's name."""
    function = row.attr("function")
    if function.startswith("bitwise") and row.inputs[0].format not in INTEGER_FORMATS:
        function = f"logical_{function.removeprefix('bitwise_')}"  # truth values as 0 and 1
    if function not in _BINARY:
        raise refused(row, f"no binary function {function!r}")
    kwargs: dict[str, Any] = {"memory_config": row.memory}
    if row.out.format != row.inputs[0].format:
        kwargs["dtype"] = dtype(row.out.format)
    if row.attr("into") is not None:
        kwargs = {"output_tensor": row.ref(row.attr("into"))}
    for name, given in _CHAINS:
        functions = chain(row, row.attr(given))
        if functions:
            kwargs[name] = functions
    operands: tuple[Any, ...] = tuple(row.ref(i) for i in range(len(row.names)))
    if len(operands) == 1:
        scalar = row.attr("scalar")
        operands = (scalar, *operands) if row.attr("scalar_first") else (*operands, scalar)
    return Make(f"ttnn.{_BINARY[function]}", operands, kwargs)


@call("Ternary")
def ternary(row: OpRow) -> Make:
    """The function of three operands by ttnn's name."""
    function = row.attr("function")
    refs = [row.ref(i) for i in range(len(row.names))]
    second, third = row.attr("b_scalar"), row.attr("c_scalar")
    kwargs: dict[str, Any] = {"memory_config": row.memory}
    b: Any = second if second is not None else (refs[1] if len(refs) > 1 else None)
    c: Any = (
        third if third is not None else (refs[-1] if len(refs) > 1 + (second is None) else None)
    )
    if function == "where":
        return Make("ttnn.where", (refs[0], b, c), kwargs)
    if function in ("addcmul", "addcdiv"):
        value = row.attr("value")
        return Make(f"ttnn.{function}", (refs[0], b, c),
                    {**kwargs, "value": 1.0 if value is None else float(value)})  # fmt: skip
    if function == "lerp":
        return Make("ttnn.lerp", (refs[0], b, c), kwargs)
    if function == "clamp":
        return Make("ttnn.clamp", (refs[0], b, c), kwargs)
    raise refused(row, f"no ternary function {function!r}")


@call("Typecast")
def typecast(row: OpRow) -> Make:
    """``ttnn.typecast`` and its arguments."""
    return Make("ttnn.typecast", (row.ref(0), dtype(row.out.format)), {"memory_config": row.memory})


@call("Tilize", "Untilize")
def change_layout(row: OpRow) -> Make:
    """``ttnn.to_layout``, tilize or untilize."""
    kwargs: dict[str, Any] = {"memory_config": row.memory}
    if row.out.format != row.inputs[0].format:
        kwargs["dtype"] = dtype(row.out.format)
    return Make("ttnn.to_layout", (row.ref(0), layout(row.out.layout)), kwargs)


@call("InterleavedToSharded", "ShardedToInterleaved", "Reshard", "Copy")
def move(row: OpRow) -> Make:
    """All four are one call; ttnn picks the device op by the two memories."""
    return Make("ttnn.to_memory_config", (row.ref(0), row.memory))


@call("Reshape")
def reshape(row: OpRow) -> Make:
    """``ttnn.reshape`` and its arguments."""
    return Make("ttnn.reshape", (row.ref(0), list(row.out.shape)), {"memory_config": row.memory})


@call("Permute")
def permute(row: OpRow) -> Make:
    """``ttnn.permute`` and its arguments."""
    dims = [int(d) for d in row.attr("dims")]
    return Make("ttnn.permute", (row.ref(0), dims), {"memory_config": row.memory})


@call("Transpose")
def transpose(row: OpRow) -> Make:
    """``ttnn.transpose`` and its arguments."""
    first, second = (int(d) for d in row.attr("dims"))
    return Make("ttnn.transpose", (row.ref(0), first, second), {"memory_config": row.memory})


@call("Repeat")
def repeat(row: OpRow) -> Make:
    """``ttnn.repeat`` and its arguments."""
    return Make("ttnn.repeat", (row.ref(0), _numbers(row.attr("repeats"))),
                {"memory_config": row.memory})  # fmt: skip


@call("Concat")
def concat(row: OpRow) -> Make:
    """``ttnn.concat`` and its arguments."""
    refs = [row.ref(i) for i in range(len(row.names))]
    return Make("ttnn.concat", (refs,), {"dim": row.attr("dim"), "memory_config": row.memory})


@call("Slice")
def cut(row: OpRow) -> Make:
    """``ttnn.slice`` and its arguments."""
    begins, ends = _numbers(row.attr("begins")), _numbers(row.attr("ends"))
    args: list[Any] = [row.ref(0), begins, ends]
    steps = _numbers(row.attr("steps"))
    if any(step != 1 for step in steps):
        args.append(steps)
    return Make("ttnn.slice", tuple(args), {"memory_config": row.memory})


@call("Pad")
def pad(row: OpRow) -> Make:
    """``ttnn.pad`` and its arguments."""
    pads = [[int(a), int(b)] for a, b in row.attr("pads")]
    return Make("ttnn.pad", (row.ref(0), pads, float(row.attr("value"))),
                {"memory_config": row.memory})  # fmt: skip


@call("Embeddings")
def embedding(row: OpRow) -> Make:
    """``ttnn.embedding`` and its arguments."""
    return Make("ttnn.embedding", (row.ref(0), row.ref(1)),
                {"layout": layout(row.out.layout), "memory_config": row.memory})  # fmt: skip


@call("Gather")
def gather(row: OpRow) -> Make:
    """``ttnn.gather`` and its arguments."""
    return Make("ttnn.gather", (row.ref(0), row.attr("dim"), row.ref(1)),
                {"memory_config": row.memory})  # fmt: skip


@call("Scatter")
def scatter(row: OpRow) -> Make:
    """``ttnn.scatter`` and its arguments."""
    kwargs: dict[str, Any] = {"memory_config": row.memory}
    if row.attr("reduce"):
        kwargs["reduce"] = row.attr("reduce")
    return Make("ttnn.scatter", (row.ref(0), row.attr("dim"), row.ref(1), row.ref(2)), kwargs)


@call("Full")
def full(row: OpRow) -> Make:
    """``ttnn.full`` and its arguments."""
    return Make("ttnn.full", (list(row.out.shape), float(row.attr("value"))), _made(row))


@call("Arange")
def arange(row: OpRow) -> Make:
    """``ttnn.arange`` and its arguments."""
    return Make("ttnn.arange", (row.attr("start"), row.attr("end"), row.attr("step")), _made(row))


def _made(row: OpRow) -> dict[str, Any]:
    return {"dtype": dtype(row.out.format), "layout": layout(row.out.layout), "device": DEVICE,
            "memory_config": row.memory}  # fmt: skip


def _numbers(values: Sequence[Any]) -> list[int]:
    return [int(v) for v in values]
