"""Ops without a device lowering: they run on the host and are shown as host ops."""

from __future__ import annotations

from typing import Any

import torch

from temper.errors import CompileError
from temper.frontend.lowering.builder import DEVICE_FORMATS, Builder, Value
from temper.frontend.node import Node, is_node
from temper.program import Op

_DROPPED = ("device", "layout", "memory_format", "pin_memory", "generator")


def fall_back(b: Builder, node: Node) -> Value | tuple[Value, ...]:
    """One Host op for this node, or an error naming op, module and line when that is off."""
    if not b.options["fallback"]:
        where = f"{b.source.file}:{b.source.line}" if b.source.file else "unknown line"
        raise CompileError(
            f"{node.target} has no device lowering and fallback is off",
            in_=f"module {b.source.module or '(top)'}, {where}",
            try_=["fallback=True", "an op that the chip has"],
        )
    inputs: list[Value] = []

    def encode(argument: Any) -> Any:
        if is_node(argument):
            inputs.append(b.plain(b[argument]))
            dtype = inputs[-1].dtype
            # Floating-point values are float32 on the host; only other dtypes must be named.
            named = {} if dtype.is_floating_point else {"dtype": _name(dtype)}
            return {"input": len(inputs) - 1, **named}
        if isinstance(argument, (list, tuple)):
            return [encode(a) for a in argument]
        if isinstance(argument, torch.dtype):
            return {"dtype": _name(argument)}
        if isinstance(argument, (torch.device, torch.layout, torch.memory_format)):
            return None
        return argument

    args = [encode(a) for a in node.args]
    kwargs = {k: encode(v) for k, v in node.kwargs.items() if k not in _DROPPED}
    val = node.meta["val"]
    many = isinstance(val, (tuple, list))
    results = list(val) if many else [val]
    const = bool(inputs) and all(v.const for v in inputs) and bool(b.options["enable_const_eval"])
    outs = [
        b.declare(node.name, r.shape, r.dtype, const=const, fmt=DEVICE_FORMATS.get(r.dtype),
                  layout="row_major", host=True)
        for r in results
    ]  # fmt: skip
    attrs = {"target": str(node.target), "args": args, "kwargs": kwargs}
    op = Op("Host", tuple(v.name for v in inputs), tuple(o.name for o in outs), attrs, b.source)
    (b.const_ops if const else b.ops).append(op)
    moved = tuple(_upload(b, o) for o in outs)
    return moved if many else moved[0]


def _upload(b: Builder, value: Value) -> Value:
    """A host result that the chip reads is tilized on its way in."""
    return b.in_layout(value, "tile")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
