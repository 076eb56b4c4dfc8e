"""Softmax, layer norm and rms norm written out by hand become the chip's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.match import (
    Either,
    Match,
    Num,
    Var,
    call,
    cast_back,
    inherit,
    rewrite,
    strip_casts,
    value_like,
)
from temper.graph.node import Node
from temper.options import Options

aten = torch.ops.aten

_X, _W, _B = Var("x"), Var("w"), Var("b")
_MUL, _ADD, _SUB, _DIV = aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.div.Tensor
_SHIFTED = call(_SUB, _X, call(aten.amax.default, _X, name="max"))
_EXP = Either(
    (call(aten.exp.default, _SHIFTED, name="exp"), call(aten.exp.default, _X, name="exp"))
)


def fuse_softmax(captured: Captured, options: Options) -> int:
    """exp(x - max) / sum, with or without the maximum."""
    pattern = call(_DIV, _EXP, call(aten.sum.dim_IntList, Var("same"), name="sum"))

    def build(graph: fx.Graph, node: Node, found: Match) -> Node | None:
        total = found["sum"]
        if strip_casts(found["same"]) is not found["exp"]:
            return None
        dims, keep = total.args[1], len(total.args) > 2 and total.args[2]
        if not keep or len(dims) != 1:
            return None
        new = graph.call_function(aten.softmax.int, (found["x"], dims[0]))
        inherit(new, node, node.meta["val"])
        return cast_back(graph, new, node)

    return rewrite(captured.graph, pattern, build)


_MEAN = call(aten.mean.dim, _X, name="mean")
_CENTRED = call(_SUB, _X, _MEAN)
_VARIANCE = Either((
    call(aten.mean.dim, Either((call(aten.pow.Tensor_Scalar, _CENTRED, Num(2.0)),
                                call(aten.square.default, _CENTRED),
                                call(_MUL, _CENTRED, _CENTRED))), name="var"),
    call(aten.var.correction, _X, name="var"),
    call(aten.var.dim, _X, name="var"),
))  # fmt: skip
_ROOT = Either((
    call(aten.sqrt.default, call(_ADD, _VARIANCE, Num(name="eps"))),
    call(aten.pow.Tensor_Scalar, call(_ADD, _VARIANCE, Num(name="eps")), Num(0.5)),
))  # fmt: skip
_NORMALISED = Either((
    call(_DIV, _CENTRED, _ROOT),
    call(_MUL, _CENTRED, call(aten.rsqrt.default, call(_ADD, _VARIANCE, Num(name="eps")))),
))  # fmt: skip
_LAYER_NORM = (call(_ADD, call(_MUL, _NORMALISED, _W), _B), _NORMALISED)

_SQUARES = Either((
    call(aten.mean.dim, call(aten.pow.Tensor_Scalar, _X, Num(2.0)), name="var"),
    call(aten.mean.dim, call(aten.square.default, _X), name="var"),
    call(aten.mean.dim, call(_MUL, _X, _X), name="var"),
))  # fmt: skip
_RMS = Either((
    call(_MUL, _X, call(aten.rsqrt.default, call(_ADD, _SQUARES, Num(name="eps")))),
    call(_DIV, _X, call(aten.sqrt.default, call(_ADD, _SQUARES, Num(name="eps")))),
))  # fmt: skip
_RMS_NORM = (call(_MUL, _RMS, _W), _RMS)


def fuse_norms(captured: Captured, options: Options) -> int:
    """Put one op in the place of a norm that is written out."""
    hits = 0
    for pattern in _LAYER_NORM:
        hits += rewrite(captured.graph, pattern, _layer_norm)
    for pattern in _RMS_NORM:
        hits += rewrite(captured.graph, pattern, _rms_norm)
    return hits


def _layer_norm(graph: fx.Graph, node: Node, found: Match) -> Node | None:
    var = found["var"]
    if var.target is aten.var.correction and var.kwargs.get("correction") != 0:
        return None
    if var.target is aten.var.dim and (len(var.args) < 3 or var.args[2]):
        return None
    return _build(graph, node, found, aten.layer_norm.default, ("w", "b"))


def _rms_norm(graph: fx.Graph, node: Node, found: Match) -> Node | None:
    return _build(graph, node, found, aten.rms_norm.default, ("w",))


def _build(
    graph: fx.Graph, node: Node, found: Match, target: Any, operands: tuple[str, ...]
) -> Node | None:
    """Over the last dimension only; operands must be vectors of its length."""
    x = strip_casts(found["x"])
    shape = x.meta["val"].shape
    dims = found["var"].args[1] if len(found["var"].args) > 1 else None
    if dims is None or [d % len(shape) for d in dims] != [len(shape) - 1]:
        return None
    given = [found.bound.get(name) for name in operands]
    for value in given:
        if value is not None and tuple(value.meta["val"].shape) != (shape[-1],):
            return None
    eps = found["eps"]
    new = graph.call_function(target, (x, [shape[-1]], *given, eps))
    inherit(new, node, value_like(node, x.meta["val"].dtype))
    return cast_back(graph, new, node)
