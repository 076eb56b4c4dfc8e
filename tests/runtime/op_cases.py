"""The op table as test cases: each kind with attributes and shapes that are not tile multiples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from temper.program import Op, Program, TensorSpec

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
    return Program("case", "n150", {**ins, **outs}, (op,), tuple(ins), tuple(outs))


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


S = (2, 3, 37, 50)
OTHERS = [
    *(
        Case("Matmul", ((2, 37, 45), (45, 19)), ((2, 37, 19),), {"fidelity": f})
        for f in ("LoFi", "HiFi2", "HiFi3", "HiFi4")
    ),
    Case(
        "Matmul",
        ((37, 45), (19, 45), (19,)),
        ((37, 19),),
        {"transpose_b": True, "activations": [["gelu"]]},
    ),
    Case(
        "Matmul",
        ((2, 3, 45, 37), (2, 3, 45, 19)),
        ((2, 3, 37, 19),),
        {"transpose_a": True, "fp32_acc": True},
    ),
    Case("Matmul", ((3, 5, 7), (2, 3, 7, 4)), ((2, 3, 5, 4),), {"fidelity": "HiFi3"}),
    *(
        Case(
            "Sdpa",
            ((2, 4, 21, 24), (2, kv, 33, 24), (2, kv, 33, 24)),
            ((2, 4, 21, 24),),
            {"fidelity": f},
        )
        for kv, f in ((4, "HiFi4"), (2, "HiFi2"))
    ),
    Case("Sdpa", ((1, 2, 21, 24),) * 3, ((1, 2, 21, 24),), {"causal": True, "scale": 0.3}),
    Case("Sdpa", (*((2, 2, 9, 8),) * 3, (2, 1, 1, 9)), ((2, 2, 9, 8),), {}),
    Case("Sdpa", (*((2, 2, 9, 8),) * 3, (2, 1, 9, 9)), ((2, 2, 9, 8),), {}),
    Case(
        "Conv2d",
        ((1, 1, 2 * 9 * 7, 5), (11, 5, 3, 3), (11,)),
        ((1, 1, 2 * 9 * 7, 11),),
        window(
            2,
            9,
            7,
            (3, 3),
            padding=[1, 1, 1, 1],
            in_channels=5,
            out_channels=11,
            activations=[["relu"]],
        ),
    ),
    *(
        Case(
            "Conv2d",
            ((1, 1, 81, 6), (8, 3, 3, 2)),
            ((1, 1, 4 * 5, 8),),
            window(
                1,
                9,
                9,
                (3, 2),
                stride=[2, 2],
                padding=[1, 0, 1, 0],
                in_channels=6,
                out_channels=8,
                groups=2,
                fidelity=f,
            ),
        )
        for f in ("LoFi", "HiFi2", "HiFi3")
    ),
    Case(
        "Conv2d",
        ((1, 1, 100, 4), (4, 1, 3, 3)),
        ((1, 1, 36, 4),),
        window(1, 10, 10, (3, 3), dilation=[2, 2], in_channels=4, out_channels=4, groups=4),
    ),
    Case(
        "Conv2d",
        ((1, 1, 100, 3), (1, 1, 12, 7)),
        ((1, 1, 81, 7),),
        window(1, 10, 10, (2, 2), in_channels=3, out_channels=7, prepared=True),
    ),
    Case(
        "Conv2d",
        ((1, 1, 2 * 25, 33), (9, 33, 1, 1)),
        ((1, 1, 2 * 9, 9),),
        window(2, 5, 5, (1, 1), stride=[2, 2], in_channels=33, out_channels=9),
    ),
    Case(
        "ConvTranspose2d",
        ((1, 1, 2 * 12, 6), (6, 4, 3, 3), (8,)),
        ((1, 1, 2 * 6 * 8, 8),),
        window(
            2,
            3,
            4,
            (3, 3),
            stride=[2, 2],
            padding=[1, 1, 1, 1],
            output_padding=[1, 1],
            in_channels=6,
            out_channels=8,
            groups=2,
        ),
    ),
    Case("PrepareConvWeight", ((7, 5, 3, 3),), ((1, 1, 45, 7),), exact=True),
    Case(
        "Pool2d",
        ((1, 1, 2 * 63, 19),),
        ((1, 1, 2 * 5 * 4, 19),),
        window(2, 9, 7, (3, 3), stride=[2, 2], padding=[1, 1, 1, 1], channels=19),
        exact=True,
    ),
    Case(
        "Pool2d",
        ((1, 1, 63, 19),),
        ((1, 1, 5 * 4, 19),),
        window(1, 9, 7, (2, 2), stride=[2, 2], channels=19, ceil_mode=True),
        exact=True,
    ),
    *(
        Case(
            "Pool2d",
            ((1, 1, 63, 19),),
            ((1, 1, 5 * 4, 19),),
            window(
                1,
                9,
                7,
                (3, 3),
                stride=[2, 2],
                padding=[1, 1, 1, 1],
                channels=19,
                function="avg",
                **more,
            ),
        )
        for more in ({}, {"count_include_pad": False}, {"divisor": 5})
    ),
    Case(
        "Pool2d",
        ((1, 1, 64, 8),),
        ((1, 1, 25, 8),),
        window(1, 8, 8, (2, 2), stride=[2, 2], padding=[1, 1, 1, 1], channels=8),
        exact=True,
    ),
    Case("Upsample", ((2, 5, 3, 7),), ((2, 10, 6, 7),), {"scale": [2.0, 2.0]}, exact=True),
    Case("Upsample", ((2, 5, 3, 7),), ((2, 11, 7, 7),), {"mode": "bilinear"}),
    Case("Upsample", ((2, 5, 3, 7),), ((2, 9, 6, 7),), {"mode": "bilinear", "align_corners": True}),
    Case(
        "Unary",
        ((3, 33),),
        ((3, 33),),
        {"functions": [["clamp", 0.0, None], ["add", 1.0], ["log"], ["neg"]]},
    ),
    Case(
        "BinaryNg",
        ((3, 33),),
        ((3, 33),),
        {"scalar": 1.5, "function": "sub", "scalar_first": True, "post": [["relu"]]},
    ),
    Case(
        "BinaryNg",
        ((3, 1, 33), (1, 17, 1)),
        ((3, 17, 33),),
        {"function": "mul", "lhs": [["silu"]], "rhs": [["neg"]], "post": [["relu"]]},
    ),
    Case("BinaryNg", ((3, 33), (33,)), ((3, 33),), {"function": "add"}, exact=False),
    *(
        Case("Ternary", ((3, 33), (3, 33), (1, 33)), ((3, 33),), {"function": f, "value": 0.5})
        for f in ("where", "addcmul", "lerp")
    ),
    Case("Ternary", ((3, 33), (3, 33), (1, 33)), ((3, 33),), {"function": "addcdiv"}, low=0.5),
    Case("Ternary", ((3, 33),), ((3, 33),), {"function": "clamp", "b_scalar": -1.0}, exact=True),
    Case(
        "Ternary",
        ((3, 33), (3, 33)),
        ((3, 33),),
        {"function": "where", "c_scalar": 2.0},
        exact=True,
    ),
    *(
        Case("Reduce", (S,), (out,), {"function": f, "dims": dims})
        for f in ("sum", "mean", "max", "min", "var", "std", "any", "all")
        for dims, out in (([-1], (2, 3, 37)), ([1, 2], (2, 50)), ([], ()))
    ),
    Case("Reduce", ((3, 5),), ((3,),), {"function": "prod", "dims": [1]}),
    Case("Softmax", (S,), (S,), {"dim": -1}),
    Case("Softmax", (S,), (S,), {"dim": 1}),
    Case("Softmax", (S, (2, 1, 1, 50)), (S,), {"scale": 0.125}),
    Case("Softmax", ((2, 1, 37, 50),), ((2, 1, 37, 50),), {"dim": -1, "scale": 2.0}),
    Case("LayerNorm", (S,), (S,), {}),
    Case("LayerNorm", (S, (50,), (50,)), (S,), {"operands": ["x", "weight", "bias"]}),
    Case(
        "LayerNorm",
        (S, (50,), S),
        (S,),
        {"operands": ["x", "weight", "residual"], "norm": "rms", "activations": [["silu"]]},
    ),
    Case("LayerNorm", (S, (50,)), (S,), {"operands": ["x", "bias"]}),
    Case("GroupNorm", ((2, 1, 37, 12), (12,), (12,)), ((2, 1, 37, 12),), {"groups": 3}),
    Case("BatchNorm", ((2, 5, 3, 7), (5,), (5,), (5,), (5,)), ((2, 5, 3, 7),), {}, low=0.25),
    Case("RotaryEmbedding", ((2, 3, 21, 24), (1, 1, 21, 24), (1, 1, 21, 24)), ((2, 3, 21, 24),)),
    Case(
        "CreateQkvHeads",
        ((2, 21, 96),),
        ((2, 4, 21, 16), (2, 1, 21, 16), (2, 1, 21, 16)),
        {"heads": 4, "kv_heads": 1},
        exact=True,
    ),
    Case(
        "CreateQkvHeads",
        ((2, 21, 96),),
        ((2, 2, 21, 16), (2, 2, 16, 21), (2, 2, 21, 16)),
        {"heads": 2, "kv_heads": 2, "transpose_k": True},
        exact=True,
    ),
    Case("ConcatHeads", ((2, 3, 21, 24),), ((2, 21, 72),), exact=True),
    Case(
        "Embeddings",
        ((2, 13), (40, 19)),
        ((2, 13, 19),),
        formats=("uint32", "bfloat16"),
        output_formats=("bfloat16",),
        high=40,
        exact=True,
    ),
    Case(
        "Gather",
        ((5, 19), (3, 19)),
        ((3, 19),),
        {"dim": 0},
        formats=("bfloat16", "uint32"),
        output_formats=("bfloat16",),
        exact=True,
    ),
    Case(
        "Slice",
        ((5, 19, 7),),
        ((2, 10, 7),),
        {"begins": [1, 0, 0], "ends": [3, 19, 7], "steps": [1, 2, 1]},
        exact=True,
    ),
    Case("Concat", ((5, 19), (5, 4), (5, 33)), ((5, 56),), {"dim": 1}, exact=True),
    Case("Concat", ((5, 19), (2, 19)), ((7, 19),), {"dim": 0}, exact=True),
    Case("Pad", ((5, 19),), ((8, 24),), {"pads": [[1, 2], [0, 5]], "value": 1.5}, exact=True),
    Case("Permute", ((2, 5, 19, 3),), ((2, 3, 5, 19),), {"dims": [0, 3, 1, 2]}, exact=True),
    Case("Transpose", ((5, 19),), ((19, 5),), {"dims": [0, 1]}, exact=True),
    Case("Reshape", ((5, 18),), ((9, 10),), exact=True),
    Case("Repeat", ((5, 1),), ((5, 19),), {"repeats": [1, 19]}, exact=True),
    Case("Repeat", ((5, 3),), ((2, 10, 9),), {"repeats": [2, 2, 3]}, exact=True),
    *(
        Case(
            "Typecast",
            ((5, 19),),
            ((5, 19),),
            formats=("float32",),
            output_formats=(f,),
            low=-300,
            high=300,
            exact=True,
        )
        for f in ("bfloat16", "bfloat8_b", "bfloat4_b", "int32", "uint16", "uint8", "uint32")
    ),
    *(
        Case(kind, ((5, 19),), ((5, 19),), exact=True)
        for kind in (
            "Halo",
            "Tilize",
            "Untilize",
            "InterleavedToSharded",
            "ShardedToInterleaved",
            "Reshard",
            "Copy",
        )
    ),
    Case("ArgMax", ((5, 19),), ((5,),), {"dim": 1}, output_formats=("uint32",), exact=True),
    Case("ArgMax", ((5, 19),), ((),), {"largest": False}, output_formats=("uint32",), exact=True),
    Case(
        "TopK",
        ((5, 19),),
        ((5, 4), (5, 4)),
        {"k": 4},
        formats=("float32",),
        output_formats=("float32", "uint16"),
        exact=True,
    ),
    Case(
        "Sort",
        ((5, 19),),
        ((5, 19), (5, 19)),
        {"descending": True},
        formats=("float32",),
        output_formats=("float32", "uint16"),
        exact=True,
    ),
    Case("CumSum", ((5, 19),), ((5, 19),), {"dim": 0}),
    Case("Full", (), ((5, 19),), {"value": 0.1}, exact=True),
    Case("Arange", (), ((19,),), {"start": 1, "end": 20}, exact=True),
]
