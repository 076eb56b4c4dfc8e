"""The form of an op-table case, its program and data; the cases of elementwise functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from temper.program import KINDS, Op, Program, TensorSpec

FLOATS = ("bfloat16", "float32", "bfloat8_b", "bfloat4_b")


@dataclass(frozen=True)
class Case:
    """One op: input shapes (a trailing letter picks the data), output shapes, attributes."""

    kind: str
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    formats: tuple[str, ...] = ()  # of the inputs; empty: the format under test
    output_formats: tuple[str, ...] = ()
    low: float = -4.0
    high: float = 4.0
    exact: bool = False

    @property
    def name(self) -> str:
        words = [self.attrs.get(k) for k in ("function", "functions", "fidelity", "norm")]
        return "-".join([self.kind, *(str(w) for w in words if w)])


def program(case: Case, format_name: str = "bfloat16") -> Program:
    formats = case.formats or (format_name,) * len(case.inputs)
    output_formats = case.output_formats or (format_name,) * len(case.outputs)
    ins = {
        f"x{i}": TensorSpec(s, f) for i, (s, f) in enumerate(zip(case.inputs, formats, strict=True))
    }
    outs = {
        f"y{i}": TensorSpec(s, f)
        for i, (s, f) in enumerate(zip(case.outputs, output_formats, strict=True))
    }
    op = Op(case.kind, tuple(ins), tuple(outs), case.attrs)
    state = {"x0": "x0"} if KINDS[case.kind].in_place else {}
    inputs = tuple(name for name in ins if name not in state)
    return Program("case", "n150", {**ins, **outs}, (op,), inputs, tuple(outs), state=state)


def data(case: Case, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    formats = case.formats or ("float",) * len(case.inputs)
    arrays = []
    for shape, name in zip(case.inputs, formats, strict=True):
        if name in ("uint32", "int32", "uint16", "uint8"):
            arrays.append(rng.integers(0, max(1, int(case.high)), shape))
        else:
            arrays.append(rng.uniform(case.low, case.high, shape).astype(np.float32))
    return arrays


def window(batch: int, h: int, w: int, kernel: Sequence[int], **more: Any) -> dict[str, Any]:
    return {"batch": batch, "in_h": h, "in_w": w, "kernel": list(kernel), **more}


POSITIVE = {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "lgamma", "reciprocal"}
UNIT = {"asin", "acos", "atanh", "erfinv"}
PARAMETERS = {
    "leaky_relu": [0.1], "elu": [1.3], "celu": [0.7], "hardtanh": [-0.5, 1.5],
    "softplus": [2.0, 5.0], "clamp": [-0.75, None], "add": [0.3], "sub": [0.3], "rsub": [1.5],
    "mul": [0.7], "div": [3.0], "rdiv": [2.0], "pow": [3.0], "rpow": [2.0], "fmod": [1.5],
    "remainder": [1.5], "threshold": [0.1, 7.0], "heaviside": [0.5], "eq": [1.0], "ne": [1.0],
    "lt": [0.0], "le": [0.0], "gt": [0.0], "ge": [0.0], "maximum": [0.25], "minimum": [0.25],
}  # fmt: skip


def unary_case(name: str) -> Case:
    low, high = -4.0, 4.0
    if name in POSITIVE:
        low = 0.05
    if name in UNIT:
        low, high = -0.95, 0.95
    if name == "acosh":
        low = 1.0
    return Case(
        "Unary",
        ((3, 37, 45),),
        ((3, 37, 45),),
        {"functions": [[name, *PARAMETERS.get(name, [])]]},
        low=low,
        high=high,
    )


def binary_case(name: str) -> Case:
    low = 0.25 if name in ("pow", "xlogy") else -4.0
    formats, outs = (), ()
    if name.startswith(("bitwise", "shift")):
        formats, outs = ("int32", "int32"), ("int32",)
        low = 0.0
    return Case(
        "BinaryNg",
        ((3, 33, 19), (33, 19)),
        ((3, 33, 19),),
        {"function": name},
        formats=formats,
        output_formats=outs,
        low=low,
    )
