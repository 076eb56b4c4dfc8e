"""Reductions, argmax, top-k and sorting."""

from __future__ import annotations

import math
from typing import Any

import torch

from temper.graph.node import Node
from temper.lowering.builder import Builder, Value
from temper.lowering.elementwise import arguments, cast, result
from temper.lowering.pool import spatial_mean
from temper.lowering.registry import lowers

aten = torch.ops.aten

_FUNCTIONS = {
    aten.sum.dim_IntList: "sum", aten.sum.default: "sum", aten.mean.dim: "mean",
    aten.mean.default: "mean", aten.amax.default: "max", aten.amin.default: "min",
    aten.max.default: "max", aten.min.default: "min", aten.prod.dim_int: "prod",
    aten.prod.default: "prod", aten.any.default: "any", aten.any.dim: "any",
    aten.any.dims: "any", aten.all.default: "all", aten.all.dim: "all", aten.all.dims: "all",
    aten.var.correction: "var", aten.var.dim: "var", aten.std.correction: "std",
}  # fmt: skip


def _dims(value: Any, rank: int) -> list[int]:
    if value is None or value == []:
        return list(range(rank))
    values = value if isinstance(value, (list, tuple)) else [value]
    return sorted(int(d) % max(rank, 1) for d in values)


@lowers(*_FUNCTIONS)
def lower_reduce(b: Builder, node: Node) -> Value | None:
    """Sums, means, maxima and their kin."""
    given = arguments(node)
    function = _FUNCTIONS[node.target]
    x = b[node.args[0]]
    shape, dtype = result(node)
    dims = _dims(given.get("dim"), len(x.shape))
    keepdim = bool(given.get("keepdim", False))
    if function == "mean" and x.image is not None and x.image == x.shape and dims == [2, 3]:
        return spatial_mean(b, node, x)
    correction = given.get("correction")
    if node.target is aten.var.dim:
        correction = 1 if given.get("unbiased", True) else 0
    attrs: dict[str, Any] = {"function": function, "dims": dims, "keepdim": keepdim}
    if function in ("var", "std"):
        attrs["correction"] = 1 if correction is None else correction
    x = b.plain(x)
    if not x.shape:  # of one value; torch's variance of one value is undefined
        return None if function in ("var", "std", "any", "all") else cast(b, x, dtype, node.name)
    return b.emit("Reduce", [x], shape, dtype, attrs, name=node.name)


@lowers(aten.var_mean.correction)
def lower_var_mean(b: Builder, node: Node) -> tuple[Value, ...] | None:
    """Variance and mean."""
    given = arguments(node)
    x = b.plain(b[node.args[0]])
    if not x.shape:
        return None
    dims, keepdim = _dims(given["dim"], len(x.shape)), bool(given["keepdim"])
    correction = 1 if given["correction"] is None else given["correction"]
    attrs = {"dims": dims, "keepdim": keepdim, "correction": correction}
    return tuple(
        b.emit("Reduce", [x], v.shape, v.dtype, {"function": f, **attrs}, name=node.name)
        for f, v in zip(("var", "mean"), node.meta["val"], strict=True)
    )


@lowers(aten.argmax.default, aten.argmin.default)
def lower_argmax(b: Builder, node: Node) -> Value:
    """Where the largest or smallest value is."""
    given = arguments(node)
    shape, dtype = result(node)
    x = b.plain(b[node.args[0]])
    dim = given.get("dim")
    return b.emit(
        "ArgMax",
        [x],
        shape,
        dtype,
        {
            "dim": None if dim is None else int(dim) % max(1, len(x.shape)),
            "keepdim": bool(given.get("keepdim", False)),
            "largest": node.target is aten.argmax.default,
        },
        name=node.name,
    )


@lowers(aten.max.dim, aten.min.dim)
def lower_max_dim(b: Builder, node: Node) -> tuple[Value, ...]:
    """The largest or smallest value and where it is."""
    given = arguments(node)
    x = b.plain(b[node.args[0]])
    dim, keepdim = int(given["dim"]) % max(1, len(x.shape)), bool(given.get("keepdim", False))
    largest = node.target is aten.max.dim
    values, indices = node.meta["val"]
    top = b.emit(
        "Reduce",
        [x],
        values.shape,
        values.dtype,
        {"function": "max" if largest else "min", "dims": [dim], "keepdim": keepdim},
        name=node.name,
    )
    if not any(user.args[1] == 1 and user.users for user in node.users):
        return top, top
    where = b.emit(
        "ArgMax",
        [x],
        indices.shape,
        indices.dtype,
        {"dim": dim, "keepdim": keepdim, "largest": largest},
        name=node.name,
    )
    return top, where


@lowers(aten.topk.default)
def lower_topk(b: Builder, node: Node) -> tuple[Value, ...]:
    """The k largest or smallest."""
    given = arguments(node)
    x = b.plain(b[node.args[0]])
    values, indices = node.meta["val"]
    return b.emit_many(
        "TopK",
        [x],
        [(values.shape, values.dtype), (indices.shape, indices.dtype)],
        {
            "k": int(given["k"]),
            "dim": int(given["dim"]) % max(1, len(x.shape)),
            "largest": bool(given["largest"]),
            "sorted": bool(given["sorted"]),
        },
        name=node.name,
    )


@lowers(aten.sort.default)
def lower_sort(b: Builder, node: Node) -> tuple[Value, ...]:
    """Values in order, and where they were."""
    given = arguments(node)
    x = b.plain(b[node.args[0]])
    values, indices = node.meta["val"]
    return b.emit_many(
        "Sort",
        [x],
        [(values.shape, values.dtype), (indices.shape, indices.dtype)],
        {"dim": int(given["dim"]) % max(1, len(x.shape)), "descending": bool(given["descending"])},
        name=node.name,
    )


@lowers(aten.linalg_vector_norm.default)
def lower_vector_norm(b: Builder, node: Node) -> Value | None:
    """The root of a sum of squares, the sum of magnitudes, or the largest one."""
    given = arguments(node)
    shape, dtype = result(node)
    x = b.plain(b[node.args[0]])
    order = float(given["ord"])
    if order not in (1.0, 2.0, math.inf) or not x.shape:
        return None
    size = [["square" if order == 2.0 else "abs"]]
    made = b.emit("Unary", [x], x.shape, dtype, {"functions": size}, name=node.name)
    attrs = {
        "function": "max" if order == math.inf else "sum",
        "dims": _dims(given["dim"], len(x.shape)),
        "keepdim": bool(given["keepdim"]),
    }
    made = b.emit("Reduce", [made], shape, dtype, attrs, name=node.name)
    if order == 2.0:
        made = b.emit("Unary", [made], shape, dtype, {"functions": [["sqrt"]]}, name=node.name)
    return made
