"""Unary, binary and ternary ops, comparisons and casts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from temper.graph.node import Node, is_node
from temper.lowering.averages import beside
from temper.lowering.builder import Builder, Value
from temper.lowering.registry import lowers

aten = torch.ops.aten

# ATen name -> function of a unary chain, parameters taken from the arguments that follow.
_UNARY = {
    "relu": "relu", "relu6": "relu6", "sigmoid": "sigmoid", "tanh": "tanh", "silu": "silu",
    "mish": "mish", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2",
    "log10": "log10", "log1p": "log1p", "sqrt": "sqrt", "rsqrt": "rsqrt",
    "reciprocal": "reciprocal", "square": "square", "abs": "abs", "neg": "neg", "sign": "sign",
    "sgn": "sign", "floor": "floor", "ceil": "ceil", "round": "round", "trunc": "trunc",
    "frac": "frac", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos",
    "atan": "atan", "sinh": "sinh", "cosh": "cosh", "asinh": "asinh", "acosh": "acosh",
    "atanh": "atanh", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "lgamma": "lgamma",
    "logical_not": "logical_not", "bitwise_not": "bitwise_not", "isnan": "isnan",
    "isinf": "isinf", "isfinite": "isfinite", "hardsigmoid": "hardsigmoid",
    "hardswish": "hardswish", "log_sigmoid": "logsigmoid", "selu": "selu",
}  # fmt: skip
_UNARY_WITH_PARAMETERS = {
    "leaky_relu": ("leaky_relu", (0.01,)), "celu": ("celu", (1.0,)),
    "hardtanh": ("hardtanh", (-1.0, 1.0)), "softplus": ("softplus", (1.0, 20.0)),
}  # fmt: skip
_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "div", "pow": "pow", "maximum": "maximum",
    "minimum": "minimum", "fmod": "fmod", "remainder": "remainder",
    "floor_divide": "floor_divide", "atan2": "atan2", "hypot": "hypot", "eq": "eq", "ne": "ne",
    "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "logical_and": "logical_and",
    "logical_or": "logical_or", "logical_xor": "logical_xor", "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor", "logaddexp": "logaddexp",
    "xlogy": "xlogy", "bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right",
}  # fmt: skip


def _overloads(name: str) -> list[Any]:
    packet = getattr(aten, name)
    kept = ("default", "Tensor", "Scalar", "Tensor_Scalar", "Tensor_Tensor", "Tensor_mode",
            "Scalar_mode", "Scalar_Tensor", "decimals")  # fmt: skip
    return [getattr(packet, o) for o in packet.overloads() if o in kept]


def result(node: Node) -> tuple[tuple[int, ...], torch.dtype]:
    """Shape and dtype that the graph says a node has."""
    value = node.meta["val"]
    return tuple(int(s) for s in value.shape), value.dtype


def arguments(node: Node) -> dict[str, Any]:
    """The arguments of a node by their names in the op's schema, defaults included."""
    schema = node.target._schema.arguments
    given = {a.name: a.default_value for a in schema if a.has_default_value()}
    given.update(zip([a.name for a in schema], node.args, strict=False))
    return {**given, **node.kwargs}


def unary(b: Builder, node: Node, functions: Sequence[Sequence[Any]]) -> Value:
    """One Unary op with this chain; images stay images."""
    x = b[node.args[0]]
    shape, dtype = result(node)
    stored = b.spec(x).shape
    out = b.emit(
        "Unary",
        [x],
        stored,
        dtype,
        {"functions": [list(f) for f in functions]},
        name=node.name,
        layout=b.spec(x).layout,
        image=x.image,
    )
    return replace(out, shape=shape)


# Integers narrower than the chip's wrap around on the host, as torch defines it.
_NARROW = (torch.uint8, torch.int8, torch.int16)
_WRAPPING = {"neg", "bitwise_not", "abs", "square", "add", "sub", "mul", "pow", "shift_left"}


@lowers(*[o for name in _UNARY for o in _overloads(name) if o is not aten.round.decimals])
def lower_unary(b: Builder, node: Node) -> Value | None:
    """Functions of one operand, by their table."""
    function = _UNARY[node.target._schema.name.split("::")[1]]
    dtype = result(node)[1]
    if function == "bitwise_not" and dtype is torch.bool:
        function = "logical_not"  # truth values are zeros and ones of bfloat16 on the chip
    if function in _WRAPPING and dtype in _NARROW:
        return None
    return unary(b, node, [[function]])


@lowers(*[o for name in _UNARY_WITH_PARAMETERS for o in _overloads(name)])
def lower_unary_with_parameters(b: Builder, node: Node) -> Value:
    """Functions of one operand with numbers beside it."""
    name = node.target._schema.name.split("::")[1]
    function, defaults = _UNARY_WITH_PARAMETERS[name]
    given = list(node.args[1:]) + [node.kwargs[k] for k in node.kwargs]
    parameters = [float(p) for p in given] + list(defaults[len(given) :])
    return unary(b, node, [[function, *parameters]])


@lowers(aten.gelu.default)
def lower_gelu(b: Builder, node: Node) -> Value:
    """GELU, exact or by tanh."""
    tanh = node.kwargs.get("approximate", "none") == "tanh"
    return unary(b, node, [["gelu_tanh" if tanh else "gelu"]])


@lowers(aten.elu.default)
def lower_elu(b: Builder, node: Node) -> Value | None:
    """ELU with its usual scales."""
    if any(float(p) != 1.0 for p in node.args[2:]):
        return None
    return unary(b, node, [["elu", float(node.args[1]) if len(node.args) > 1 else 1.0]])


@lowers(aten.threshold.default)
def lower_threshold(b: Builder, node: Node) -> Value:
    """Values below a threshold replaced."""
    return unary(b, node, [["threshold", node.args[1], node.args[2]]])


@lowers(aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default)
def lower_clamp(b: Builder, node: Node) -> Value:
    """Values held between two numbers."""
    args = [*node.args[1:], None, None]
    low, high = node.kwargs.get("min", args[0]), node.kwargs.get("max", args[1])
    if node.target is aten.clamp_min.default:
        low, high = args[0], None
    elif node.target is aten.clamp_max.default:
        low, high = None, args[0]
    return unary(b, node, [["clamp", low, high]])


@lowers(aten._to_copy.default, aten.to.dtype, aten.type_as.default)
def lower_cast(b: Builder, node: Node) -> Value:
    """Another dtype."""
    x = b[node.args[0]]
    return cast(b, x, result(node)[1], node.name)


def cast(b: Builder, x: Value, dtype: torch.dtype, name: str) -> Value:
    """To another torch dtype: nothing, a typecast, or a comparison with zero for booleans."""
    if dtype == x.dtype:
        return x
    if dtype is torch.bool:
        return replace(
            b.emit(
                "Unary",
                [x],
                b.spec(x).shape,
                dtype,
                {"functions": [["ne", 0.0]]},
                name=name,
                image=x.image,
            ),
            shape=x.shape,
        )
    if not dtype.is_floating_point and x.dtype.is_floating_point:
        x = b.emit(
            "Unary",
            [x],
            b.spec(x).shape,
            x.dtype,
            {"functions": [["trunc"]]},
            name=name,
            image=x.image,
        )
    if not x.const and b.format_of(dtype) == b.spec(x).format:
        return replace(x, dtype=dtype)
    return replace(
        b.emit("Typecast", [x], b.spec(x).shape, dtype, name=name, image=x.image), shape=x.shape
    )


def binary_operands(b: Builder, x: Value, y: Value) -> tuple[Value, Value, Any]:
    """Both operands in one storage form: images where that is possible, else plain."""
    for image, other, flip in ((x, y, False), (y, x, True)):
        if image.image is None:
            continue
        n, c, h, w = image.image
        if other.image == image.image:
            return x, y, image.image
        if image.shape == (n, c, h, w):
            flat: Value | None = None
            if other.shape in ((n, c, h, w), (n, 1, h, w)):
                flat = b.flat(other)
            elif other.shape == (n, c, 1, 1):
                pair = beside(b, image, other)
                if pair is not None:
                    return (*(reversed(pair) if flip else pair), image.image)
            elif other.shape in ((c, 1, 1), (1, c, 1, 1)):
                flat = b.emit("Reshape", [other], (1, 1, 1, c), other.dtype, name=other.name)
            elif len(other.shape) == 0 or all(s == 1 for s in other.shape):
                flat = b.emit("Reshape", [other], (1, 1, 1, 1), other.dtype, name=other.name)
            if flat is not None:
                return (flat, image, image.image) if flip else (image, flat, image.image)
    return b.plain(x), b.plain(y), None


def binary(b: Builder, node: Node, function: str, x: Any, y: Any, *, name: str = "") -> Value:
    """A BinaryNg op on two values or a value and a number."""
    shape, dtype = result(node)
    if isinstance(x, Value) and isinstance(y, Value):
        left, right, image = binary_operands(b, x, y)
        stored = _broadcast(b.spec(left).shape, b.spec(right).shape)
        out = b.emit(
            "BinaryNg",
            [left, right],
            stored,
            dtype,
            {"function": function},
            name=name or node.name,
            image=image,
        )
        if image is not None and stored[:2] != (1, 1):  # images as batches: flat again
            n, c, h, w = image
            rows = (1, 1, n * h * w, c)
            out = b.emit("Reshape", [out], rows, dtype, name=out.name, image=image)
        return replace(out, shape=shape)
    value, scalar, first = (x, y, False) if isinstance(x, Value) else (y, x, True)
    out = b.emit(
        "BinaryNg",
        [value],
        b.spec(value).shape,
        dtype,
        {"function": function, "scalar": _number(scalar), "scalar_first": first},
        name=name or node.name,
        image=value.image,
    )
    return replace(out, shape=shape)


def operand(b: Builder, argument: Any) -> Any:
    """A value for a node, a number as it is."""
    return b[argument] if is_node(argument) else argument


@lowers(*[o for name in _BINARY for o in _overloads(name)])
def lower_binary(b: Builder, node: Node) -> Value | None:
    """Two operands: add, mul, comparisons and their kin."""
    name = node.target._schema.name.split("::")[1]
    function = _BINARY[name]
    x, y = (operand(b, a) for a in node.args[:2])
    if function in _WRAPPING and result(node)[1] in _NARROW:
        return None
    mode = node.kwargs.get("rounding_mode")
    if mode:
        function = {"floor": "floor_divide", "trunc": "trunc_divide"}[str(mode)]
    alpha = node.kwargs.get(
        "alpha", node.args[2] if name in ("add", "sub") and len(node.args) > 2 else 1
    )
    if alpha != 1:
        if isinstance(y, Value):
            y = cast(b, y, result(node)[1], node.name)  # half of an odd integer is no integer
            y = replace(
                b.emit(
                    "BinaryNg",
                    [y],
                    b.spec(y).shape,
                    y.dtype,
                    {"function": "mul", "scalar": _number(alpha)},
                    name=node.name,
                    image=y.image,
                ),
                shape=y.shape,
            )
        else:
            y = y * alpha
    if isinstance(y, Value) and function == "div" and not y.dtype.is_floating_point:
        y = cast(b, y, result(node)[1], node.name)
    if isinstance(x, Value) and function == "div" and not x.dtype.is_floating_point:
        x = cast(b, x, result(node)[1], node.name)
    return binary(b, node, function, x, y)


@lowers(aten.rsub.Tensor, aten.rsub.Scalar)
def lower_rsub(b: Builder, node: Node) -> Value | None:
    """The second operand minus the first."""
    if arguments(node).get("alpha", 1) != 1:
        return None
    return binary(b, node, "sub", operand(b, node.args[1]), operand(b, node.args[0]))


@lowers(aten.clamp.Tensor)
def lower_clamp_tensor(b: Builder, node: Node) -> Value:
    """Values held between two tensors."""
    given = arguments(node)
    x = b[node.args[0]]
    for name, function in (("min", "maximum"), ("max", "minimum")):
        if given.get(name) is not None:
            x = binary(b, node, function, x, b[given[name]])
    return x


@lowers(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def lower_where(b: Builder, node: Node) -> Value:
    """One of two operands by a condition."""
    condition, x, y = (operand(b, a) for a in node.args)
    return where(b, node, condition, x, y)


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def lower_masked_fill(b: Builder, node: Node) -> Value:
    """A value where a mask is set."""
    x, mask, value = (operand(b, a) for a in node.args)
    return where(b, node, mask, value, x)


def where(b: Builder, node: Node, condition: Value, x: Any, y: Any) -> Value:
    """The op of where for operands of any shape."""
    shape, dtype = result(node)
    inputs = [b.plain(condition)]
    attrs: dict[str, Any] = {"function": "where"}
    for side, key in ((x, "b_scalar"), (y, "c_scalar")):
        if isinstance(side, Value):
            inputs.append(b.plain(side))
        else:
            attrs[key] = _number(side)
    return b.emit("Ternary", inputs, shape, dtype, attrs, name=node.name)


@lowers(aten.addcmul.default, aten.addcdiv.default)
def lower_addc(b: Builder, node: Node) -> Value:
    """An operand plus a scaled product or quotient."""
    name = node.target._schema.name.split("::")[1]
    shape, dtype = result(node)
    inputs = [b.plain(b[a]) for a in node.args[:3]]
    return b.emit(
        "Ternary",
        inputs,
        shape,
        dtype,
        {"function": name, "value": float(node.kwargs.get("value", 1.0))},
        name=node.name,
    )


def _number(value: Any) -> int | float | bool:
    return value if isinstance(value, (int, float, bool)) else float(value)


def _broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(tuple(a), tuple(b)))  # type: ignore[no-untyped-call]
