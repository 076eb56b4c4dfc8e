"""Host kernels of elementwise ops: float32 on exact operands, one rounding at the end."""

from __future__ import annotations

from typing import Any

import torch

from temper.errors import CompileError
from temper.program import Op
from temper.program.tensor import INTEGER_FORMATS
from temper.runtime.builder import Builder, kernel
from temper.runtime.functions import BINARY, apply, stages
from temper.runtime.values import to_integer

Tensor = torch.Tensor


def _buffer(b: Builder, op: Op, *positions: int) -> Tensor:
    """The memory of an operand that dies here, or a fresh buffer."""
    for position in positions:
        out = b.in_place(op, position)
        if out is not None:
            return out
    return b.output(op)


def _emit(b: Builder, op: Op, function: Any, *positions: int) -> list[Tensor]:
    target = b.spec(op.outputs[0]).format
    if target in INTEGER_FORMATS:
        return [b.compute(op, lambda: to_integer(function(), target))]
    return [b.compute(op, function, out=_buffer(b, op, *positions))]


@kernel("Unary")
def unary(b: Builder, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: the whole chain in float32, rounded once."""
    x, chain = inputs[0], stages(op.attr("functions"))
    return _emit(b, op, lambda: apply(x, chain), 0)


@kernel("BinaryNg")
def binary(b: Builder, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: post(function(lhs(a), rhs(b))) in float32, rounded once; broadcast as numpy does."""
    name = op.attr("function")
    if name not in BINARY:
        raise CompileError(f"no host kernel for the function {name!r}", allowed=sorted(BINARY))
    function = BINARY[name]
    lhs, rhs, post = (stages(op.attr(part)) for part in ("lhs", "rhs", "post"))
    if len(inputs) == 2:
        first, second, positions = inputs[0], inputs[1], (0, 1)
    else:
        scalar = torch.tensor(
            op.attr("scalar"),
            dtype=inputs[0].dtype if not isinstance(op.attr("scalar"), float) else torch.float32,
        )
        first, second, positions = inputs[0], scalar, (0,)
        if op.attr("scalar_first"):
            first, second = second, first
    return _emit(
        b, op, lambda: apply(function(apply(first, lhs), apply(second, rhs)), post), *positions
    )


@kernel("Ternary")
def ternary(b: Builder, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: in float32, rounded once. where: a is a zero/non-zero condition; addcmul a + v*b*c;
    addcdiv a + v*b/c; lerp a + c*(b - a); clamp min(max(a, b), c)."""
    name, value = op.attr("function"), op.attr("value")
    value = 1.0 if value is None else value
    rest = list(inputs[1:])
    a = inputs[0]
    operands: list[Any] = []
    for part in ("b", "c"):
        scalar = op.attr(f"{part}_scalar")
        operands.append(scalar if scalar is not None else (rest.pop(0) if rest else None))
    second, third = operands

    def compute() -> Tensor:
        if name == "where":
            return torch.where(a != 0, _tensor(second), _tensor(third))
        if name == "addcmul":
            return a + value * second * third
        if name == "addcdiv":
            return a + value * second / third
        if name == "lerp":
            return a + third * (second - a)
        if name == "clamp":
            low = a if second is None else torch.maximum(a, _tensor(second))
            return low if third is None else torch.minimum(low, _tensor(third))
        raise CompileError(
            f"no host kernel for the ternary function {name!r}",
            allowed=["where", "addcmul", "addcdiv", "lerp", "clamp"],
        )

    return _emit(b, op, compute, *range(len(inputs)))


def _tensor(operand: Any) -> Tensor:
    return operand if isinstance(operand, Tensor) else torch.tensor(float(operand))


@kernel("RotaryEmbedding")
def rotary(b: Builder, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: x * cos + rotate_half(x) * sin in float32, rounded once."""
    x, cos, sin = inputs
    half = x.shape[-1] // 2

    def compute() -> Tensor:
        rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * cos + rotated * sin

    return [b.compute(op, compute)]
