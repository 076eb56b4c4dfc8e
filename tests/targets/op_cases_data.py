"""Op-table cases that move, look up, order and make data."""

from __future__ import annotations

from .op_cases import Case

DATA: list[Case] = [
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
    *(
        Case(
            "Scatter",
            ((5, 19), (3, 19), (3, 19)),
            ((5, 19),),
            {"dim": 0, "reduce": reduce},
            formats=("bfloat16", "uint32", "bfloat16"),
            output_formats=("bfloat16",),
        )
        for reduce in ("add", "multiply", "amax", "amin")
    ),
    Case(
        "Scatter",
        ((5, 19), (5, 1), (5, 1)),
        ((5, 19),),
        {"dim": 1},
        formats=("bfloat16", "uint32", "bfloat16"),
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
    Case(
        "FoldImage",
        ((2, 3, 9, 10),),
        ((1, 1, 12, 112),),
        {"step": [2, 2], "padding": [3, 0, 1, 3], "channels": 4},
        exact=True,
    ),
    Case(
        "FoldImage",
        ((3, 3, 8, 12),),
        ((1, 1, 12, 48),),
        {"step": [4, 4], "channels": 3, "images": [1, 3]},
        exact=True,
    ),
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
            "Move",
            "FillPad",
            "ScaleMask",
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
