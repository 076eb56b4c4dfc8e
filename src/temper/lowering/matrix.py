"""Matmul, linear, attention and the norms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from temper.graph.node import Node
from temper.lowering.builder import Builder, Value, volume
from temper.lowering.data import reshape
from temper.lowering.elementwise import arguments, binary, operand, result
from temper.lowering.registry import lowers
from temper.program.tensor import TILE

aten = torch.ops.aten


def matmul(
    b: Builder,
    node: Node,
    x: Value,
    w: Value,
    bias: Value | None = None,
    *,
    transpose_b: bool = False,
    transpose_a: bool = False,
) -> Value:
    """A Matmul; constant weights are transposed and put in their format by const-eval."""
    shape, dtype = result(node)
    x, w = b.plain(x), b.plain(w)
    fmt = (node.meta.get("weight_format") or {}).get("format")
    if w.const and transpose_b and b.options["enable_const_eval"] and b.level > 0:
        turned = (*w.shape[:-2], w.shape[-1], w.shape[-2])
        w = b.emit("Transpose", [w], turned, w.dtype, {"dims": [-2, -1]}, name=w.name)
        transpose_b = False
    if fmt:
        w = b.on_device(w, fmt)
    tail = [b.plain(bias)] if bias is not None else []
    attrs = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    if not (b.lazy_layout and _batch_joins_rows(x, w) and not transpose_a):
        return b.emit("Matmul", [x, w, *tail], shape, dtype, attrs, name=node.name)
    # Weights are read once instead of once a batch; both reshapes move nothing.
    rows = volume(x.shape[:-1])
    x = b.emit("Reshape", [x], (rows, x.shape[-1]), x.dtype, name=x.name)
    out = b.emit("Matmul", [x, w, *tail], (rows, shape[-1]), dtype, attrs, name=node.name)
    return b.emit("Reshape", [out], shape, dtype, name=node.name)


def _batch_joins_rows(x: Value, w: Value) -> bool:
    """A batch of whole tiles of rows against one matrix."""
    batched = len(x.shape) > 2 and volume(x.shape[:-2]) > 1
    return batched and len(w.shape) == 2 and x.shape[-2] % TILE == 0


@lowers(aten.linear.default)
def lower_linear(b: Builder, node: Node) -> Value:
    """Linear: a matmul with the weight transposed once."""
    x, w = b[node.args[0]], b[node.args[1]]
    bias = node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")
    return matmul(b, node, x, w, b[bias] if bias is not None else None, transpose_b=True)


@lowers(aten.mm.default, aten.bmm.default, aten.matmul.default)
def lower_matmul(b: Builder, node: Node) -> Value:
    """Matrix products of any rank."""
    x, w = b.plain(b[node.args[0]]), b.plain(b[node.args[1]])
    flags = node.meta.get("transposes", (False, False))
    if len(x.shape) == 1 or len(w.shape) == 1:
        return _vector_matmul(b, node, x, w)
    return matmul(b, node, x, w, transpose_a=flags[0], transpose_b=flags[1])


def _vector_matmul(b: Builder, node: Node, x: Value, w: Value) -> Value:
    """Vectors are matrices of one row or column on the chip."""
    shape, dtype = result(node)
    if len(x.shape) == 1:
        x = b.emit("Reshape", [x], (1, x.shape[0]), x.dtype, name=x.name)
    if len(w.shape) == 1:
        w = b.emit("Reshape", [w], (w.shape[0], 1), w.dtype, name=w.name)
    batch = torch.broadcast_shapes(x.shape[:-2], w.shape[:-2])  # type: ignore[no-untyped-call]
    full = (*batch, x.shape[-2], w.shape[-1])
    out = b.emit("Matmul", [x, w], full, dtype, {}, name=node.name)
    return b.emit("Reshape", [out], shape, dtype, name=node.name)


@lowers(aten.addmm.default)
def lower_addmm(b: Builder, node: Node) -> Value | None:
    """A product and a bias."""
    if node.kwargs.get("beta", 1) != 1 or node.kwargs.get("alpha", 1) != 1:
        return None
    bias, x, w = (b[a] for a in node.args[:3])
    flags = node.meta.get("transposes", (False, False))
    if len(bias.shape) != 1:  # ttnn's matmul adds a row, not a matrix
        out = matmul(b, node, x, w, transpose_b=flags[1])
        return binary(b, node, "add", out, bias)
    return matmul(b, node, x, w, bias, transpose_b=flags[1])


@lowers(aten.softmax.int, aten._softmax.default)
def lower_softmax(b: Builder, node: Node) -> Value:
    """Softmax along a dimension."""
    shape, dtype = result(node)
    x = b.plain(b[node.args[0]])
    dim = int(node.args[1]) % max(1, len(shape))
    return b.emit("Softmax", [x], shape, dtype, {"dim": dim - len(shape)}, name=node.name)


@lowers(aten.log_softmax.int, aten._log_softmax.default)
def lower_log_softmax(b: Builder, node: Node) -> Value:
    """x - max, minus the logarithm of the sum of exponentials; ttnn has no fused form."""
    shape, dtype = result(node)
    x = b.plain(b[node.args[0]])
    dim = int(node.args[1]) % max(1, len(shape))
    kept = tuple(1 if i == dim else s for i, s in enumerate(shape))
    top = b.emit(
        "Reduce",
        [x],
        kept,
        dtype,
        {"function": "max", "dims": [dim], "keepdim": True},
        name=node.name,
    )
    shifted = b.emit("BinaryNg", [x, top], shape, dtype, {"function": "sub"}, name=node.name)
    exp = b.emit("Unary", [shifted], shape, dtype, {"functions": [["exp"]]}, name=node.name)
    total = b.emit(
        "Reduce",
        [exp],
        kept,
        dtype,
        {"function": "sum", "dims": [dim], "keepdim": True},
        name=node.name,
    )
    log = b.emit("Unary", [total], kept, dtype, {"functions": [["log"]]}, name=node.name)
    return b.emit("BinaryNg", [shifted, log], shape, dtype, {"function": "sub"}, name=node.name)


def _norm(
    b: Builder,
    node: Node,
    kind: str,
    normalized: Sequence[int],
    operands: dict[str, Any],
    eps: float,
) -> Value | None:
    shape, dtype = result(node)
    rank = len(normalized)
    x = b.plain(b[node.args[0]])
    width = volume(normalized)
    if rank > 1:
        x = b.emit("Reshape", [x], (*shape[:-rank], width), dtype, name=node.name)
    present = ["x"]
    inputs = [x]
    for name in ("weight", "bias"):
        if operands.get(name) is not None:
            value = b[operands[name]]
            if rank > 1:
                value = b.emit("Reshape", [value], (width,), value.dtype, name=value.name)
            present.append(name)
            inputs.append(value)
    out = b.emit(
        "LayerNorm",
        inputs,
        b.spec(x).shape,
        dtype,
        {"norm": kind, "eps": eps, "operands": present},
        name=node.name,
    )
    return b.emit("Reshape", [out], shape, dtype, name=node.name) if rank > 1 else out


@lowers(aten.layer_norm.default)
def lower_layer_norm(b: Builder, node: Node) -> Value | None:
    """Layer norm over the last dimensions."""
    args = [*node.args, None, None, None][:5]
    eps = node.args[4] if len(node.args) > 4 else node.kwargs.get("eps", 1e-5)
    return _norm(
        b,
        node,
        "layer",
        node.args[1],
        {"weight": node.kwargs.get("weight", args[2]), "bias": node.kwargs.get("bias", args[3])},
        float(eps),
    )


@lowers(aten.rms_norm.default)
def lower_rms_norm(b: Builder, node: Node) -> Value | None:
    """RMS norm over the last dimension."""
    args = [*node.args, None, None][:4]
    eps = node.kwargs.get("eps", args[3])
    if eps is None:
        eps = torch.finfo(result(node)[1]).eps
    return _norm(
        b,
        node,
        "rms",
        node.args[1],
        {"weight": node.kwargs.get("weight", args[2])},
        float(eps),
    )


@lowers(aten.scaled_dot_product_attention.default)
def lower_sdpa(b: Builder, node: Node) -> Value | None:
    """Scaled dot-product attention."""
    shape, dtype = result(node)
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if given.get("dropout_p"):
        return None
    q, k, v = (b.plain(b[given[n]]) for n in names[:3])
    if len(q.shape) != 4:
        lead = (1,) * (4 - len(q.shape)) if len(q.shape) < 4 else None
        if lead is None:
            return None
        q, k, v = (
            b.emit("Reshape", [t], (*lead, *t.shape), t.dtype, name=t.name) for t in (q, k, v)
        )
    if q.shape[0] != k.shape[0] or k.shape[1] != v.shape[1]:
        return None
    # ttnn lets several query heads share a key head; torch broadcasts a single one as well.
    if q.shape[1] != k.shape[1] and k.shape[1] != 1 and not given.get("enable_gqa"):
        return None
    inputs = [q, k, v]
    mask = given.get("attn_mask")
    if mask is not None:
        value = b.plain(operand(b, mask))
        if value.dtype is torch.bool:
            value = b.emit(
                "Ternary",
                [value],
                value.shape,
                dtype,
                {"function": "where", "b_scalar": 0.0, "c_scalar": float("-inf")},
                name=value.name,
            )
        inputs.append(value)
    scale = given.get("scale")
    full = (*q.shape[:-1], v.shape[-1])
    out = b.emit(
        "Sdpa",
        inputs,
        full,
        dtype,
        {
            "scale": None if scale is None else float(scale),
            "causal": bool(given.get("is_causal", False)),
        },
        name=node.name,
    )
    if full != shape:
        out = b.emit("Reshape", [out], shape, dtype, name=node.name)
    return out


@lowers(aten.group_norm.default)
def lower_group_norm(b: Builder, node: Node) -> Value:
    """Group norm."""
    given = arguments(node)
    weight, bias = given.get("weight"), given.get("bias")
    return _group_norm(b, node, int(node.args[1]), weight, bias, float(given["eps"]))


@lowers(aten._native_batch_norm_legit.no_stats)
def lower_instance_norm(b: Builder, node: Node) -> tuple[Value, ...] | None:
    """Instance norm as torch writes it: (1, N*C, ...) in groups of one channel."""
    given = arguments(node)
    channels = node.meta["val"][0].shape
    if channels[0] != 1 or any(user.args[1] != 0 and user.users for user in node.users):
        return None
    weight, bias = given.get("weight"), given.get("bias")
    out = _group_norm(b, node, int(channels[1]), weight, bias, float(given["eps"]))
    return out, out, out


def _group_norm(b: Builder, node: Node, groups: int, weight: Any, bias: Any, eps: float) -> Value:
    x = b[node.args[0]]
    val = node.meta["val"]
    first = val[0] if isinstance(val, (tuple, list)) else val
    shape, dtype = tuple(int(s) for s in first.shape), first.dtype
    n, c = shape[:2]
    if c % TILE:
        return _group_norm_of_rows(b, node, groups, weight, bias, eps)
    if len(shape) == 4:
        flat = b.flat(x)
    else:
        flat = b.flat(
            replace(
                b.emit("Reshape", [b.plain(x)], (n, c, volume(shape[2:]), 1), dtype, name=node.name)
            )
        )
    pixels = volume(shape[2:])
    rows = b.emit("Reshape", [replace(flat, image=None)], (n, 1, pixels, c), dtype, name=node.name)
    present, inputs = ["x"], [rows]
    for name, argument in (("weight", weight), ("bias", bias)):
        if argument is not None:
            present.append(name)
            inputs.append(b[argument])
    out = b.emit(
        "GroupNorm",
        inputs,
        (n, 1, pixels, c),
        dtype,
        {"groups": groups, "eps": eps, "operands": present},
        name=node.name,
    )
    out = b.emit("Reshape", [out], (1, 1, n * pixels, c), dtype, name=node.name)
    if len(shape) == 4:
        return b.settle(replace(out, shape=shape, image=shape))
    image = (n, c, pixels, 1)
    plain = b.plain(replace(out, shape=image, image=image))
    return b.emit("Reshape", [plain], shape, dtype, name=node.name)


def _group_norm_of_rows(
    b: Builder, node: Node, groups: int, weight: Any, bias: Any, eps: float
) -> Value:
    """ttnn's group norm takes whole tiles of channels; others are layer norms of a group each."""
    val = node.meta["val"]
    first = val[0] if isinstance(val, (tuple, list)) else val
    shape, dtype = tuple(int(s) for s in first.shape), first.dtype
    rows = (shape[0] * groups, volume(shape[1:]) // groups)
    x = b.emit("Reshape", [b.plain(b[node.args[0]])], rows, dtype, name=node.name)
    attrs = {"norm": "layer", "eps": eps, "operands": ["x"]}
    out = b.emit("LayerNorm", [x], rows, dtype, attrs, name=node.name)
    out = b.emit("Reshape", [out], shape, dtype, name=node.name)
    column = (1, shape[1], *[1] * (len(shape) - 2))
    for function, argument in (("mul", weight), ("add", bias)):
        if argument is not None:
            scale = b.emit("Reshape", [b[argument]], column, dtype, name=node.name)
            out = b.emit("BinaryNg", [out, scale], shape, dtype, {"function": function},
                         name=node.name)  # fmt: skip
    return out


@lowers(aten._native_batch_norm_legit_no_training.default, aten.batch_norm.default)
def lower_batch_norm(b: Builder, node: Node) -> Value | tuple[Value, ...] | None:
    """Batch norm of inference."""
    args = list(node.args)
    weight, bias, mean, var = args[1:5]
    eps = args[6] if node.target is not aten.batch_norm.default else args[7]
    if node.target is aten.batch_norm.default and (args[5] or mean is None):
        return None
    val = node.meta["val"]
    first = val[0] if isinstance(val, (tuple, list)) else val
    shape = tuple(first.shape)
    x = b.plain(b[args[0]])
    wide = (*shape, *(1,) * (4 - len(shape)))
    if len(shape) > 4:
        wide = (*shape[:2], volume(shape[2:-1]), shape[-1])
    if wide != shape:
        x = b.emit("Reshape", [x], wide, x.dtype, name=node.name)
    present, inputs = ["x"], [x]
    channels = (1, shape[1], 1, 1)  # ttnn takes them in the image's own rank
    for name, argument in (("mean", mean), ("var", var), ("weight", weight), ("bias", bias)):
        if argument is not None:
            present.append(name)
            inputs.append(reshape(b, b[argument], channels, node.name))
    out = b.emit(
        "BatchNorm",
        inputs,
        wide,
        first.dtype,
        {"eps": float(eps), "operands": present},
        name=node.name,
    )
    if wide != shape:
        out = b.emit("Reshape", [out], shape, first.dtype, name=node.name)
    return (out, out, out) if isinstance(val, (tuple, list)) else out
