"""Op-table cases that compute: matrices, windows, norms, reductions, attention."""

from __future__ import annotations

from .op_cases import Case, window

S = (2, 3, 37, 50)
COMPUTE: list[Case] = [
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
]
