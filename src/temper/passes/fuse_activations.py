"""Activations written out by hand become the chip's own."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from temper.graph.captured import Captured
from temper.graph.match import CallPattern, Either, Match, Num, Var, call, rewrite
from temper.graph.node import Node
from temper.options import Options

aten = torch.ops.aten

_MUL, _ADD = aten.mul.Tensor, aten.add.Tensor
_X = Var("x")


def _scaled(value: float, pattern: Any) -> Either:
    """value * pattern, or pattern / (1/value)."""
    return Either((call(_MUL, pattern, Num(value)), call(aten.div.Tensor, pattern, Num(1 / value))))


_CLAMP_6 = Either((
    call(aten.relu6.default, call(_ADD, _X, Num(3.0))),
    call(aten.clamp.default, call(_ADD, _X, Num(3.0)), Num(0.0), Num(6.0)),
    call(aten.hardtanh.default, call(_ADD, _X, Num(3.0)), Num(0.0), Num(6.0)),
    call(aten.clamp_max.default, call(aten.clamp_min.default, call(_ADD, _X, Num(3.0)), Num(0.0)),
         Num(6.0)),
))  # fmt: skip
_ERF_PART = call(_ADD, call(aten.erf.default, _scaled(1 / math.sqrt(2), _X)), Num(1.0))
_CUBE = Either((
    call(aten.pow.Tensor_Scalar, _X, Num(3.0)),
    call(_MUL, call(_MUL, _X, _X), _X),
))  # fmt: skip
_TANH_PART = call(
    _ADD,
    call(
        aten.tanh.default,
        call(_MUL, call(_ADD, call(_MUL, _CUBE, Num(0.044715)), _X), Num(math.sqrt(2 / math.pi))),
    ),
    Num(1.0),
)


def _half_product(part: Any) -> Either:
    """0.5 * x * part in any grouping."""
    return Either(
        (
            call(_MUL, _scaled(0.5, _X), part),
            call(_MUL, _X, _scaled(0.5, part)),
            _scaled(0.5, call(_MUL, _X, part)),
        )
    )


# pattern -> target, keyword arguments
_REWRITES: tuple[tuple[str, CallPattern | Either, Any, dict[str, Any]], ...] = (
    ("gelu", _half_product(_ERF_PART), aten.gelu.default, {}),
    ("gelu-tanh", _half_product(_TANH_PART), aten.gelu.default, {"approximate": "tanh"}),
    ("silu", call(_MUL, _X, call(aten.sigmoid.default, _X)), aten.silu.default, {}),
    ("mish", call(_MUL, _X, call(aten.tanh.default, call(aten.softplus.default, _X))),
     aten.mish.default, {}),
    ("hardswish", Either((call(_MUL, _X, _scaled(1 / 6, _CLAMP_6)),
                          _scaled(1 / 6, call(_MUL, _X, _CLAMP_6)))), aten.hardswish.default, {}),
    ("hardsigmoid", _scaled(1 / 6, _CLAMP_6), aten.hardsigmoid.default, {}),
)  # fmt: skip


def fuse_activations(captured: Captured, options: Options) -> int:
    """Put one op in the place of an activation that is written out."""
    hits = 0
    for _, pattern, target, kwargs in _REWRITES:

        def build(
            graph: fx.Graph,
            node: Node,
            found: Match,
            target: Any = target,
            kwargs: dict[str, Any] = kwargs,
        ) -> Node | None:
            if found["x"].meta["val"].dtype != node.meta["val"].dtype:
                return None
            return graph.call_function(target, (found["x"],), kwargs)

        hits += rewrite(captured.graph, pattern, build)
    return hits
