"""Host kernels of elementwise ops: float32 on exact operands, one rounding at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from temper.errors import CompileError
from temper.program import Op
from temper.program.tensor import INTEGER_FORMATS
from temper.targets.virtual import native
from temper.targets.virtual.builder import Emitter, kernel
from temper.targets.virtual.functions import BINARY, apply, stages
from temper.targets.virtual.kernels_data import in_place_or_new
from temper.targets.virtual.values import to_integer

Tensor = torch.Tensor


def _emit(
    b: Emitter,
    op: Op,
    plan: Callable[[Tensor], Any],
    function: Callable[[], Tensor],
    *positions: int,
) -> list[Tensor]:
    """Emit the native plan for the output buffer, or torch's functions where there is none."""
    target = b.spec(op.outputs[0]).format
    if target in INTEGER_FORMATS:
        return [b.compute(op, lambda: to_integer(function(), target))]
    out = in_place_or_new(b, op, *positions)
    step = plan(out)
    if step is not None:
        b.emit_fused(step, out, target)
        return [out]
    return [b.compute(op, function, out=out)]


def _scalar(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float32 if isinstance(value, float) else None)


@kernel("Unary")
def unary(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: the whole chain in float32, rounded once."""
    x, chain = inputs[0], stages(op.attr("functions"))
    target = b.spec(op.outputs[0]).format
    return _emit(
        b,
        op,
        lambda out: native.elementwise(out, [x], target, post=chain),
        lambda: apply(x, chain),
        0,
    )


@kernel("BinaryNg")
def binary(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: post(function(lhs(a), rhs(b))) in float32, rounded once; broadcast as numpy does."""
    name = op.attr("function")
    if name not in BINARY:
        raise CompileError(f"no host kernel for the function {name!r}", allowed=sorted(BINARY))
    function = BINARY[name]
    lhs, rhs, post = (stages(op.attr(part)) for part in ("lhs", "rhs", "post"))
    operands = list(inputs)
    if len(inputs) == 1:
        scalar = _scalar(op.attr("scalar"))
        if scalar.dtype != inputs[0].dtype and inputs[0].dtype == torch.float32:
            scalar = scalar.to(torch.float32)
        operands = [scalar, inputs[0]] if op.attr("scalar_first") else [inputs[0], scalar]
    first, second = operands
    target = b.spec(op.outputs[0]).format
    return _emit(
        b,
        op,
        lambda out: native.elementwise(
            out, operands, target, function=name, lhs=lhs, rhs=rhs, post=post
        ),
        lambda: apply(function(apply(first, lhs), apply(second, rhs)), post),
        *range(len(inputs)),
    )


_TERNARY: dict[str, Callable[[Tensor, Tensor, Tensor, float], Tensor]] = {
    "where": lambda a, b, c, v: torch.where(a != 0, b, c),
    "addcmul": lambda a, b, c, v: a + v * b * c,
    "addcdiv": lambda a, b, c, v: a + v * b / c,
    "lerp": lambda a, b, c, v: a + c * (b - a),
    "clamp": lambda a, b, c, v: torch.minimum(torch.maximum(a, b), c),
}
# What clamp takes for a bound that is not given.
_BOUNDS = (
    torch.tensor(float("-inf"), dtype=torch.float32),
    torch.tensor(float("inf"), dtype=torch.float32),
)


def _operand(value: Any, others: list[Tensor]) -> Tensor:
    """A number beside these tensors: an integer beside integers, which float32 would round."""
    return _scalar(int(value) if others and not others[0].is_floating_point() else float(value))


@kernel("Ternary")
def ternary(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: in float32, rounded once. where: a is a zero/non-zero condition; addcmul a + v*b*c;
    addcdiv a + v*b/c; lerp a + c*(b - a); clamp min(max(a, b), c)."""
    name, value = op.attr("function"), op.attr("value")
    value = 1.0 if value is None else value
    if name not in _TERNARY:
        raise CompileError(
            f"no host kernel for the ternary function {name!r}", allowed=sorted(_TERNARY)
        )
    function = _TERNARY[name]
    rest = list(inputs[1:])
    a, second, third = inputs[0], _BOUNDS[0], _BOUNDS[1]
    if op.attr("b_scalar") is not None:
        second = _operand(op.attr("b_scalar"), inputs[1:])
    elif rest:
        second = rest.pop(0)
    if op.attr("c_scalar") is not None:
        third = _operand(op.attr("c_scalar"), inputs[1:])
    elif rest:
        third = rest.pop(0)
    target = b.spec(op.outputs[0]).format
    return _emit(
        b,
        op,
        lambda out: native.elementwise(out, [a, second, third], target, function=name, value=value),
        lambda: function(a, second, third, value),
        *range(len(inputs)),
    )


@kernel("RotaryEmbedding")
def rotary(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: x * cos + rotate_half(x) * sin in float32, rounded once."""
    x, cos, sin = inputs
    target = b.spec(op.outputs[0]).format
    out = b.output(op)
    step = native.rotary(out, x, cos, sin, target)
    if step is not None:
        b.emit_fused(step, out, target)
        return [out]
    half = x.shape[-1] // 2

    def compute() -> Tensor:
        rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * cos + rotated * sin

    return [b.compute(op, compute, out=out)]
