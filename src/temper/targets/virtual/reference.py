"""The reference interpreter: every device op written plainly in float64, for tests.

It shares no arithmetic with the fast kernels: numpy and scipy where they have the function, loops
over windows, phases and 16-deep steps where they do not. Each op's outputs are rounded once to
their formats, and the next op starts from the rounded values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temper.formats import quantize
from temper.program import Op, Program, TensorSpec
from temper.program.tensor import INTEGER_FORMATS
from temper.targets.virtual import (
    reference_cache,  # noqa: F401  (registers decoding)
    reference_data,  # noqa: F401  (registers the data movement)
)
from temper.targets.virtual import reference_functions as functions
from temper.targets.virtual import reference_windows as windows
from temper.targets.virtual.reference_product import product, softmax
from temper.targets.virtual.reference_table import REFERENCE, Rules, reference

Array = NDArray[Any]


def interpret(
    program: Program,
    weights: Mapping[str, Array],
    inputs: Sequence[Array],
    *,
    state: dict[str, Array] | None = None,
    exact_accumulation: bool = False,
) -> list[Array]:
    """The outputs of a program as float64 (or int64) arrays of representable values.

    ``state`` holds the tensors that the program changes, by name; it is brought up to date.
    """
    values: dict[str, Array] = {}
    held = {} if state is None else state
    for name, path in program.state.items():
        values[name] = rounded(
            held.get(path, np.zeros(program.spec(name).shape)), program.spec(name)
        )
    for name, path in program.weights.items():
        values[name] = rounded(
            weights[path] if path in weights else weights[name], program.spec(name)
        )
    for name, array in zip(program.inputs, inputs, strict=True):
        values[name] = rounded(array, program.spec(name))
    for op in (*program.const_ops, *program.ops):
        rules = Rules(exact_accumulation, tuple(s.format for s in program.input_specs(op)))
        outputs = REFERENCE[op.kind](
            op, [values[name] for name in op.inputs], program.output_specs(op), rules
        )
        for name, array in zip(op.outputs, outputs, strict=True):
            values[name] = rounded(array, program.spec(name))
    for name, path in program.state_results().items():
        held[path] = values[name]
    return [values[name] for name in program.outputs]


def rounded(array: Array, spec: TensorSpec) -> Array:
    """Values that the format holds, in the spec's shape."""
    array = np.asarray(array)
    if spec.format in INTEGER_FORMATS:
        return _integers(array, spec.format).reshape(spec.shape)
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(array.astype(np.float32).reshape(spec.shape))
    return np.asarray(quantize(single, spec.format)).astype(np.float64)


def _integers(array: Array, format_name: str) -> Array:
    whole = np.trunc(array.astype(np.float64)).astype(np.int64)
    if format_name == "uint32":
        return whole % 2**32
    if format_name == "int32":
        return np.where(np.abs(whole) < 2**31, whole, -(2**31))
    return np.clip(whole, 0, 2**16 - 1 if format_name == "uint16" else 2**8 - 1)


# -- matrix engine --------------------------------------------------------------------------------


@reference("Matmul")
def _matmul(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    a, b = inputs[:2]
    a = a.swapaxes(-1, -2) if op.attr("transpose_a") else a
    b = b.swapaxes(-1, -2) if op.attr("transpose_b") else b
    y = product(np.ascontiguousarray(a), np.ascontiguousarray(b), op, rules)
    return [functions.chain(y + inputs[2] if len(inputs) > 2 else y, op.attr("activations"))]


@reference("SparseMatmul")
def _sparse(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    a, b, sparsity = inputs
    out = np.zeros(specs[0].shape)
    for expert, flag in enumerate(sparsity.reshape(-1)):
        if flag:
            out[expert] = product(a[expert] if a.ndim == 3 else a, b[expert], op, rules)
    return [out]


@reference("Sdpa")
def _sdpa(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    q, k, v = inputs[:3]
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scale = op.attr("scale") if op.attr("scale") is not None else q.shape[-1] ** -0.5
    scores = product(q, np.ascontiguousarray(k.swapaxes(-1, -2)), op, rules) * scale
    if op.attr("causal"):
        later = np.triu(np.ones(scores.shape[-2:], bool), 1)
        scores = np.where(later, -np.inf, scores)
    elif len(inputs) > 3:
        scores = scores + inputs[3]
    closed = np.all(scores == -np.inf, axis=-1, keepdims=True)
    weights = np.where(closed, 0.0, softmax(scores, -1))
    kept = np.asarray(quantize(weights.astype(np.float32), "bfloat16"))
    return [product(kept.astype(np.float64), v, op, rules)]


@reference("Conv2d", "ConvTranspose2d")
def _convolution(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    if op.kind == "Conv2d":
        y = windows.convolution(op, inputs[0], inputs[1], lambda a, b: product(a, b, op, rules))
    else:
        y = windows.transposed(op, inputs[0], inputs[1], lambda a, b: product(a, b, op, rules))
    return [
        functions.chain(y + inputs[2].reshape(-1) if len(inputs) > 2 else y, op.attr("activations"))
    ]


@reference("PrepareConvWeight")
def _prepare(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    order = (2, 3, 0, 1) if op.attr("transposed") else (2, 3, 1, 0)
    return [inputs[0].transpose(order)]


@reference("Pool2d")
def _pool(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    return [windows.pool(op, inputs[0], specs[0])]


@reference("Upsample")
def _upsample(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    return [windows.upsample(op, inputs[0], specs[0])]


# -- elementwise and rows -------------------------------------------------------------------------


@reference("Unary")
def _unary(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    with np.errstate(all="ignore"):
        return [functions.chain(inputs[0], op.attr("functions"))]


@reference("BinaryNg")
def _binary(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    operands = list(inputs)
    if len(operands) == 1:
        scalar = np.asarray(op.attr("scalar"))
        operands = [scalar, *operands] if op.attr("scalar_first") else [*operands, scalar]
    with np.errstate(all="ignore"):
        left = functions.chain(operands[0], op.attr("lhs"))
        right = functions.chain(operands[1], op.attr("rhs"))
        y = functions.BINARY[op.attr("function")](left, right)
        return [functions.chain(np.asarray(y), op.attr("post"))]


@reference("Ternary")
def _ternary(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    a, *rest = inputs
    scalars = (op.attr("b_scalar"), op.attr("c_scalar"))
    bounds = [rest.pop(0) if s is None and rest else s for s in scalars]
    b, c = (n if x is None else x for x, n in zip(bounds, (-np.inf, np.inf), strict=True))
    value = 1.0 if op.attr("value") is None else op.attr("value")
    results: dict[str, Callable[[], Any]] = {
        "where": lambda: np.where(a != 0, b, c),
        "addcmul": lambda: a + value * b * c,
        "addcdiv": lambda: a + value * b / c,
        "lerp": lambda: a + c * (b - a),
        "clamp": lambda: np.minimum(np.maximum(a, b), c),
    }
    return [np.broadcast_to(results[op.attr("function")](), specs[0].shape)]


@reference("RotaryEmbedding")
def _rotary(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    x, cos, sin = inputs
    half = x.shape[-1] // 2
    return [x * cos + np.concatenate((-x[..., half:], x[..., :half]), -1) * sin]


@reference("Softmax")
def _softmax(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    x = inputs[0] * (1.0 if op.attr("scale") is None else op.attr("scale"))
    return [softmax(x + inputs[1] if len(inputs) > 1 else x, op.attr("dim"))]


_REDUCE: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod,
    "any": np.any, "all": np.all,
}  # fmt: skip


@reference("Reduce")
def _reduce(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    axes = tuple(op.attr("dims")) or None
    name = op.attr("function")
    if name in ("var", "std"):
        function = np.var if name == "var" else np.std
        return [np.asarray(function(inputs[0], axis=axes, ddof=op.attr("correction")))]
    return [np.asarray(_REDUCE[name](inputs[0], axis=axes))]


def _named(op: Op, inputs: list[Array]) -> dict[str, Array]:
    names = op.attrs.get("operands") or [n.rstrip("?") for n in op.info.operands[: len(inputs)]]
    return dict(zip(names, inputs, strict=True))


@reference("LayerNorm")
def _norm(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    named = _named(op, inputs)
    x = named["x"] + named.get("residual", 0.0)
    if op.attr("norm") == "layer":
        x = x - x.mean(-1, keepdims=True)
    y = x / np.sqrt((x**2).mean(-1, keepdims=True) + op.attr("eps"))
    y = y * named.get("weight", np.float64(1)).reshape(-1)
    return [
        functions.chain(y + named.get("bias", np.float64(0)).reshape(-1), op.attr("activations"))
    ]


@reference("GroupNorm")
def _group_norm(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    named = _named(op, inputs)
    x = named["x"]
    split = x.reshape(x.shape[0], -1, op.attr("groups"), x.shape[-1] // op.attr("groups"))
    mean = split.mean((1, 3), keepdims=True)
    var = ((split - mean) ** 2).mean((1, 3), keepdims=True)
    y = ((split - mean) / np.sqrt(var + op.attr("eps"))).reshape(x.shape)
    y = y * named.get("weight", np.float64(1)).reshape(-1)
    return [y + named.get("bias", np.float64(0)).reshape(-1)]


@reference("BatchNorm")
def _batch_norm(op: Op, inputs: list[Array], specs: list[TensorSpec], rules: Rules) -> list[Array]:
    named = {
        name: x if name == "x" else x.reshape(-1, 1, 1) for name, x in _named(op, inputs).items()
    }
    y = (named["x"] - named["mean"]) / np.sqrt(named["var"] + op.attr("eps"))
    return [y * named.get("weight", np.float64(1)) + named.get("bias", np.float64(0))]
