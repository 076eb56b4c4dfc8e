"""Ops without a device lowering: they run on the host and are shown as host ops.

The chip has no complex numbers. A complex value is not a value of the program but a call that the
host op of its reader makes; at the program's edges it is a pair of float32.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch

from temper.errors import CompileError
from temper.graph.host_operators import trust
from temper.graph.node import Node, is_node
from temper.graph.views import READERS, source_of_view
from temper.lowering.builder import DEVICE_FORMATS, Builder, Value
from temper.program import Op

_DROPPED = ("device", "layout", "memory_format", "pin_memory", "generator")


@dataclass(frozen=True)
class DeferredCall:
    """An operator's complex or 64-bit result that is made where it is read."""

    target: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    item: int | None = None  # of several results


def is_complex(value: Any) -> bool:
    """Whether one of a node's results is complex."""
    if isinstance(value, (tuple, list)):
        return any(is_complex(v) for v in value)
    return isinstance(value, torch.Tensor) and value.is_complex()


def complex_argument(
    b: Builder, name: str, shape: torch.Size, *, const: bool
) -> tuple[DeferredCall, Value]:
    """A complex input or weight: stored as pairs, read as one number."""
    pairs = b.declare(name, (*shape, 2), torch.float32, const=const, fmt="float32")
    return DeferredCall("aten.view_as_complex.default", (pairs,), {}), pairs


def called_output(b: Builder, value: DeferredCall, like: torch.Tensor) -> Value:
    """A result of the graph that the chip has no format for: complex as pairs, wide as it is."""
    if not like.is_complex():
        return _emit(b, "aten.clone.default", (value,), {}, [(0, like)], "wide")[0]
    pairs = torch.empty((*like.shape, 2), dtype=torch.float32, device="meta")
    return _emit(b, "aten.view_as_real.default", (value,), {}, [(0, pairs)], "complex")[0]


def fall_back(b: Builder, node: Node) -> Any:
    """One Host op for this node, or an error naming op, module and line when that is off."""
    if not b.options["fallback"]:
        where = f"{b.source.file}:{b.source.line}" if b.source.file else "unknown line"
        raise CompileError(
            f"{node.target} has no device lowering and fallback is off",
            in_=f"module {b.source.module or '(top)'}, {where}",
            try_=["fallback=True", "an op that the chip has"],
        )
    val = node.meta["val"]
    called = is_complex(val) or node in b.wide
    args = tuple(_bound(b, a) for a in node.args)
    kwargs = {k: _bound(b, v) for k, v in node.kwargs.items() if k not in _DROPPED}
    if node.target is operator.getitem:
        call = args[0]
        picked = DeferredCall(call.target, call.args, call.kwargs, int(node.args[1]))
        if called:
            return picked
        args, target = (picked,), "aten.clone.default"
    else:
        trust(node.target)
        target = str(node.target)
    if called:
        return DeferredCall(target, args, kwargs)
    if not isinstance(val, (tuple, list)):
        return _emit(b, target, args, kwargs, [(0, val)], node.name, random=_random(node))[0]
    # What nobody reads may have another shape than torch foretells, or none.
    read = {u.args[1] for u in node.users if u.users}
    kept = [(i, v) for i, v in enumerate(val) if i in read]
    made = dict(
        zip(
            [i for i, _ in kept],
            _emit(b, target, args, kwargs, kept, node.name, random=_random(node)),
            strict=True,
        )
    )
    return tuple(made.get(i) for i in range(len(val)))


def _random(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _bound(b: Builder, argument: Any) -> Any:
    """An argument with values in the place of nodes; views of an input are taken on the host."""
    if is_node(argument):
        if _shows_input(b, argument):
            rest = {k: v for k, v in argument.kwargs.items() if k not in _DROPPED}
            args = tuple(_bound(b, a) for a in argument.args)
            return DeferredCall(str(argument.target), args, rest)
        value = b.env[argument]
        return b.plain(value) if isinstance(value, Value) else value
    if isinstance(argument, (list, tuple)):
        return [_bound(b, a) for a in argument]
    return argument


def _shows_input(b: Builder, node: Node) -> bool:
    """Whether a node is a view, or a view of one, of what the call is given."""
    if node.target not in READERS or not isinstance(b.env.get(node), Value):
        return False
    source = source_of_view(node)
    while source is not None and source.target in READERS:
        source = source_of_view(source)
    value = b.env.get(source) if source is not None else None
    given = source is not None and source.op == "placeholder"
    return given and isinstance(value, Value) and not value.const and value.name not in b.state


def _emit(
    b: Builder,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    results: list[tuple[int, Any]],
    name: str,
    *,
    random: bool = False,
) -> tuple[Value, ...]:
    inputs: list[Value] = []
    attrs: dict[str, Any] = {
        "target": target,
        "args": [_encode(a, inputs) for a in args],
        "kwargs": {k: _encode(v, inputs) for k, v in kwargs.items()},
        "results": [index for index, _ in results],
    }
    constant = bool(inputs) and all(v.const for v in inputs) and not random
    const = constant and bool(b.options["enable_const_eval"])
    outs = [
        b.declare(name, r.shape, r.dtype, const=const, fmt=DEVICE_FORMATS.get(r.dtype),
                  layout="row_major", host=True)
        for _, r in results
    ]  # fmt: skip
    op = Op("Host", tuple(v.name for v in inputs), tuple(o.name for o in outs), attrs, b.source)
    (b.const_ops if const else b.ops).append(op)
    # A host result that the chip reads is tilized on its way in.
    return tuple(b.in_layout(o, "tile") for o in outs)


def _encode(argument: Any, inputs: list[Value]) -> Any:
    """An argument as JSON; values become places among the op's inputs."""
    if isinstance(argument, Value):
        inputs.append(argument)
        dtype = argument.dtype
        # Floating-point values are float32 on the host; only other dtypes must be named.
        named = {} if dtype.is_floating_point else {"dtype": _name(dtype)}
        return {"input": len(inputs) - 1, **named}
    if isinstance(argument, DeferredCall):
        return {
            "call": argument.target,
            "args": [_encode(a, inputs) for a in argument.args],
            "kwargs": {k: _encode(v, inputs) for k, v in argument.kwargs.items()},
            "item": argument.item,
        }
    if isinstance(argument, (list, tuple)):
        return [_encode(a, inputs) for a in argument]
    if isinstance(argument, torch.dtype):
        return {"dtype": _name(argument)}
    if isinstance(argument, complex):
        return {"complex": [argument.real, argument.imag]}
    if isinstance(argument, (torch.device, torch.layout, torch.memory_format)):
        return None
    return argument


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
