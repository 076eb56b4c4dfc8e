"""The host kernel of ops that have no device lowering: a torch operator by name."""

from __future__ import annotations

from typing import Any

import torch

from temper.errors import CompileError
from temper.graph.host_operators import dtype_named, resolve
from temper.program import Op
from temper.program.tensor import INTEGER_FORMATS
from temper.targets.virtual.builder import Emitter, kernel
from temper.targets.virtual.values import to_integer

Tensor = torch.Tensor


def bind_argument(argument: Any, inputs: list[Tensor]) -> Any:
    """A JSON argument as the operator takes it: ``{"input": i}`` is the i-th operand, with
    ``"dtype"`` beside it converted to that dtype; ``{"dtype": ...}`` alone is a dtype;
    ``{"complex": [real, imaginary]}`` is a number;
    ``{"call": target, "args", "kwargs", "item"}`` is the result of another operator."""
    if isinstance(argument, dict):
        if "input" in argument:
            x = inputs[argument["input"]]
            # A view of the executor may have other strides than the graph's value; some operators
            # (``_embedding_bag``) read bytes in a row without asking.
            x = x.contiguous()
            return x.to(dtype_named(argument["dtype"])) if "dtype" in argument else x
        if "call" in argument:
            made = resolve(argument["call"])(
                *bind_argument(argument["args"], inputs),
                **{k: bind_argument(v, inputs) for k, v in argument["kwargs"].items()},
            )
            made = made if argument["item"] is None else made[argument["item"]]
            # The next operator may read the bytes.
            return made.resolve_conj().resolve_neg().contiguous()
        if "dtype" in argument:
            return dtype_named(argument["dtype"])
        if "complex" in argument:
            return complex(*argument["complex"])
        raise CompileError(f"a host op cannot take the argument {argument!r}")
    if isinstance(argument, (list, tuple)):
        return [bind_argument(item, inputs) for item in argument]
    return argument


@kernel("Host")
def host(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: torch's own operator on the host's float32 or int64 values; each result is then
    rounded to its value's format. 64-bit integers stay what they are: lowering hands none to the
    chip that its 32 bits do not hold."""
    function = resolve(op.attr("target"))
    args, kwargs = op.attr("args"), op.attr("kwargs")
    outputs = [b.output(op, index) for index in range(len(op.outputs))]
    formats = [b.spec(name).format for name in op.outputs]
    chosen = op.attr("results")
    if chosen is None:
        chosen = range(len(op.outputs))

    def step() -> None:
        made = function(
            *(bind_argument(argument, inputs) for argument in args),
            **{name: bind_argument(value, inputs) for name, value in kwargs.items()},
        )
        several = [made] if isinstance(made, Tensor) else made
        results = [several[index] for index in chosen]
        for out, result, format_name in zip(outputs, results, formats, strict=True):
            if format_name in INTEGER_FORMATS and result.dtype != torch.int64:
                out.copy_(to_integer(result, format_name).reshape(out.shape))
            else:
                out.copy_(result.reshape(out.shape))

    b.emit(step)
    for out, format_name in zip(outputs, formats, strict=True):
        b.finish(out, format_name)
    return outputs
