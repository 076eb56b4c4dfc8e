"""Op-table cases of decoding: caches written in place, attention over them, experts."""

from __future__ import annotations

from .op_cases import Case

_CACHES = ("bfloat16", "bfloat8_b", "float32")

DECODE: list[Case] = [
    *(
        Case("FillCache", ((3, 2, 64, 32), (1, 2, 40, 32)), ((3, 2, 64, 32),),
             {"batch_index": user}, (fmt, fmt), (fmt,), exact=True)
        for user, fmt in enumerate(_CACHES)
    ),
    *(
        Case("UpdateCache", ((5, 2, 64, 32), (1, 5, 2, 32), (5,)), ((5, 2, 64, 32),),
             {}, (fmt, "bfloat16", "int32"), (fmt,), high=60.0, exact=True)
        for fmt in _CACHES
    ),
    *(
        Case("SdpaDecode", ((1, 3, heads, 24), (3, 2, 70, 24), (3, 2, 70, 24), (3,)),
             ((1, 3, heads, 24),), {"window": window, "fidelity": fidelity, "scale": 0.05},
             ("bfloat16", fmt, fmt, "int32"), ("bfloat16",), high=60.0)
        for heads, window, fidelity, fmt in (
            (2, 0, "HiFi4", "bfloat16"),
            (6, 0, "HiFi2", "bfloat8_b"),
            (4, 9, "HiFi3", "bfloat16"),
            (4, 0, "LoFi", "bfloat8_b"),
        )
    ),
    Case("CreateQkvHeadsDecode", ((1, 5, 8 * 16),), ((1, 5, 4, 16), (1, 5, 2, 16), (1, 5, 2, 16)),
         {"heads": 4, "kv_heads": 2}, exact=True),
    Case("ConcatHeadsDecode", ((1, 5, 4, 16),), ((1, 5, 64),), exact=True),
    Case("SparseMatmul", ((7, 45), (4, 45, 19), (4,)), ((4, 7, 19),), {"fidelity": "HiFi2"},
         ("bfloat16", "bfloat8_b", "uint8"), ("bfloat16",), high=2.0),
    Case("SparseMatmul", ((4, 7, 45), (4, 45, 19), (4,)), ((4, 7, 19),), {"fidelity": "HiFi3"},
         ("bfloat16", "bfloat16", "uint8"), ("bfloat16",), high=2.0),
]  # fmt: skip
