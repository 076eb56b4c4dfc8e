"""Between which numbers the int64 values of a graph lie: the chip's integers have 32 bits.

A value that may leave 32 bits is wide: it is computed on the host, in 64 bits, inside the op that
reads it. What inputs hold is assumed by class (a flag, a small or a 32-bit number); the caller
checks the assumption at every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from temper.graph.node import Node, is_node

Range = tuple[int, int]
INT32: Range = (-(2**31), 2**31 - 1)
# What an input may be assumed to hold, the narrowest first.
CLASSES: tuple[Range, ...] = ((0, 1), (-(2**16), 2**16), INT32)
_EVERYTHING: Range = (-(2**63), 2**63 - 1)

aten = torch.ops.aten
# Results that hold some of the numbers of their operands.
_MOVES = {
    "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "expand", "slice", "select",
    "squeeze", "unsqueeze", "clone", "repeat", "cat", "stack", "index", "index_select", "gather",
    "where", "flip", "roll", "max", "min", "amax", "amin", "maximum", "minimum", "alias", "detach",
    "contiguous", "masked_fill", "constant_pad_nd", "split", "split_with_sizes", "unbind", "sort",
    "scatter", "topk", "view_copy", "lift_fresh_copy", "_to_copy", "copy", "index_put",
    "select_scatter", "slice_scatter", "tril", "triu", "diagonal", "unfold", "cummax", "new_full",
    "cummin", "narrow", "full_like", "full", "fill", "scalar_tensor", "repeat_interleave",
}  # fmt: skip
_FILLS = {"masked_fill", "full", "full_like", "fill", "new_full", "constant_pad_nd", "where",
          "scalar_tensor"}  # fmt: skip
_PLACES = {"argmax", "argmin", "argsort", "searchsorted", "bucketize", "nonzero", "multinomial"}
_SUMS = {"sum", "cumsum"}
# The matrix engine's ops; it multiplies floating-point numbers alone.
PRODUCTS = {
    "mm", "bmm", "dot", "vdot", "matmul", "linear", "addmm", "baddbmm", "addbmm", "mv", "addmv",
    "addr", "convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d",
}  # fmt: skip
_GROWING = PRODUCTS | {
    "pow", "bitwise_left_shift", "prod", "cumprod", "addcmul", "square", "lcm",
}  # fmt: skip


def class_of(values: torch.Tensor) -> Range:
    """The narrowest class that holds the values of an input."""
    if values.numel() == 0:
        return CLASSES[0]
    low, high = (int(v) for v in torch.aminmax(values))
    return next((c for c in CLASSES if c[0] <= low and high <= c[1]), _EVERYTHING)


def wide_nodes(nodes: Iterable[Node], assumed: Mapping[str, Range]) -> set[Node]:
    """The int64 nodes whose values may leave 32 bits, with inputs (by name) as assumed."""
    known: dict[Node, Range] = {}
    wide: set[Node] = set()
    for node in nodes:
        value = node.meta.get("val")
        first = value[0] if isinstance(value, (tuple, list)) and value else value
        if not isinstance(first, torch.Tensor) or first.dtype is not torch.int64:
            if isinstance(first, torch.Tensor) and first.dtype is torch.bool:
                known[node] = (0, 1)
            elif isinstance(first, torch.Tensor) and first.dtype in (torch.int32, torch.int16):
                known[node] = INT32
            elif isinstance(first, torch.Tensor) and first.dtype is torch.uint32:
                known[node] = (0, 2**32 - 1)
            continue
        if node.op == "placeholder":
            known[node] = assumed.get(node.name, INT32)
            continue
        made = known[node] = _range(node, known)
        if made[0] < INT32[0] or made[1] > INT32[1]:
            wide.add(node)
    return wide


def op_name(node: Node) -> str:
    """The operator of a node without its library and overload."""
    return str(getattr(node.target, "_opname", getattr(node.target, "__name__", "")))


def _range(node: Node, known: Mapping[Node, Range]) -> Range:
    """The range of one int64 result; of everything that is not arithmetic: 32 bits."""
    name = op_name(node)
    operands = [_operand(a, known) for a in node.args[:2]]
    left, right = [*operands, None, None][:2]
    if name in ("add", "sub", "rsub", "mul") and left is not None and right is not None:
        (a, b), (c, d) = left, right
        scale = node.kwargs.get("alpha", 1)
        if name == "add":
            return _hull([a + c * scale, b + d * scale, a + d * scale, b + c * scale])
        if name == "sub":
            return _hull([a - c * scale, b - d * scale, a - d * scale, b - c * scale])
        if name == "rsub":
            return _hull([c - a, d - b, c - b, d - a])
        return _hull([a * c, a * d, b * c, b * d])
    if name in ("remainder", "fmod", "bitwise_and") and right is not None:
        size = max(map(abs, right))
        return (-size, size)
    if name in ("div", "floor_divide", "bitwise_right_shift", "neg", "abs", "sign"):
        low, high = left or INT32
        return _hull([low, high, -low, -high])
    if name in _SUMS:
        low, high = left or INT32
        count = max(1, node.args[0].meta["val"].numel())
        return _hull([low * count, high * count, low, high])
    if name == "arange":
        numbers = [a for a in node.args if isinstance(a, int)]
        return _hull([0, *numbers]) if len(numbers) == len(node.args) else INT32
    if name in _GROWING:
        return _EVERYTHING
    if name in _PLACES:
        return (0, INT32[1])
    if name == "clamp":
        return _clamped(node, left or INT32)
    if name in _MOVES or name == "getitem":
        given = _flat(node.args)
        numbers = given[1:] if name in _FILLS else []  # elsewhere they are places and sizes
        ranges = [known[a] for a in given if is_node(a) and a in known]
        ranges += [(int(n), int(n)) for n in numbers if isinstance(n, int)]
        return _hull([n for r in ranges for n in r]) if ranges else INT32
    held = [known[a] for a in _flat(node.args) if is_node(a) and a in known]
    wide = any(low < INT32[0] or high > INT32[1] for low, high in held)
    return _EVERYTHING if wide else INT32


def _clamped(node: Node, source: Range) -> Range:
    low, high = [*node.args[1:3], None, None][:2]
    start = low if isinstance(low, int) else source[0]
    end = high if isinstance(high, int) else source[1]
    return _hull([max(source[0], start), min(source[1], end), start if source[1] < start else end])


def _flat(arguments: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for argument in arguments:
        found += _flat(argument) if isinstance(argument, (tuple, list)) else [argument]
    return found


def _operand(argument: Any, known: Mapping[Node, Range]) -> Range | None:
    if is_node(argument):
        return known.get(argument)
    if isinstance(argument, (bool, int)):
        return (int(argument), int(argument))
    return None


def _hull(numbers: list[int]) -> Range:
    return (min(numbers), max(numbers))
