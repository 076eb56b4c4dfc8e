"""The products and the softmax that the slow references share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from temper.formats import quantize
from temper.formats.fidelity import PHASE_COUNT, PHASES, split_operand
from temper.program import Op
from temper.targets.virtual.reference_table import Rules

Array = NDArray[Any]


def product(a: Array, b: Array, op: Op, rules: Rules) -> Array:
    """a (activations) @ b (weights), phase by phase; Dest in bfloat16 if asked to be exact."""
    single = [np.asarray(quantize(x.astype(np.float32), "tf32")) for x in (a, b)]
    parts_a = dict(zip(("high", "low"), split_operand(single[0], "activations"), strict=True))
    parts_b = dict(zip(("high", "low"), split_operand(single[1], "weights"), strict=True))
    phases = PHASES[: PHASE_COUNT[op.attr("fidelity")]]
    step = 16 if rules.exact_accumulation and not op.attr("fp32_acc") else max(1, a.shape[-1])
    total = np.zeros((a[..., :0] @ b[..., :0, :]).shape)
    for k in range(0, a.shape[-1], step):
        for x, y in phases:
            left, right = parts_a[x][..., k : k + step], parts_b[y][..., k : k + step, :]
            total = total + left.astype(np.float64) @ right.astype(np.float64)
        if rules.exact_accumulation and not op.attr("fp32_acc"):
            total = np.asarray(quantize(total.astype(np.float32), "bfloat16")).astype(np.float64)
    return total


def softmax(x: Array, axis: int) -> Array:
    """Softmax in numpy, infinities included."""
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        return np.asarray(e / e.sum(axis=axis, keepdims=True))
