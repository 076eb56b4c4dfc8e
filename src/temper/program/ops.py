"""The device operations: one table of kinds, their operands, attributes and profiler names.

Every stage keys on this table: lowering emits these kinds, the virtual chip executes them, the
cost model times them, the profiler prints their op codes. Numbers: unless a kind says otherwise,
an op computes in float32 on its inputs' exact values and rounds each output once to its format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JSON = Any


@dataclass(frozen=True, slots=True)
class OpKind:
    """One kind of device operation.

    ``family`` selects the cost model, ``code`` is the profiler's OP CODE. ``operands`` name the
    inputs in order (``?`` optional, ``*`` any number). ``attrs`` give each attribute's default;
    the meaning stands beside it in the table.
    """

    name: str
    family: str
    code: str
    operands: tuple[str, ...]
    attrs: Mapping[str, JSON] = field(default_factory=dict)
    matrix: bool = False  # runs on the matrix engine: fidelity masks and the accumulator apply


# Attributes of every op that computes on the matrix engine.
# fp32_acc: accumulate in float32 instead of a bfloat16 Dest.
_COMPUTE = {"fidelity": "HiFi4", "fp32_acc": False, "packer_l1_acc": False, "approx": False}
# A fused activation or a chain of them: a list of [name, *parameters], e.g. [["relu"]] or
# [["clamp", 0.0, None], ["add", 1e-7], ["log"]].
# Sliding windows work on the flat channels-last form (1, 1, N*H*W, C); these say what N, H, W are.
_WINDOW = {
    "batch": 1,
    "in_h": 1,
    "in_w": 1,
    "kernel": [1, 1],
    "stride": [1, 1],
    "padding": [0, 0, 0, 0],  # top, bottom, left, right
    "dilation": [1, 1],
}

_TABLE = [
    # a (..., M, K) x b (..., K, N) + bias (N); activations applied before the one rounding.
    # config: None, or the ttnn program config as a mapping with "name" (class name without the
    # "ProgramConfig" suffix) and its numbers: grid [x, y], in0_block_w, out_subblock_h/w,
    # out_block_h/w, per_core_m, per_core_n, mcast_in0, fuse_batch.
    OpKind(
        "Matmul",
        "matmul",
        "MatmulDeviceOperation",
        ("a", "b", "bias?"),
        {"transpose_a": False, "transpose_b": False, "activations": [], "config": None, **_COMPUTE},
        matrix=True,
    ),
    # x (1,1,N*H*W,C); weight logical (O, C/groups, kh, kw) until prepared, then the spec is
    # (1, 1, kh*kw*C, O) in tiles while hosts may keep any form; bias (O).
    OpKind(
        "Conv2d",
        "conv2d",
        "Conv2dDeviceOperation",
        ("x", "weight", "bias?"),
        {
            **_WINDOW,
            "groups": 1,
            "in_channels": 1,
            "out_channels": 1,
            "activations": [],
            "prepared": False,
            "act_block_h": 0,
            **_COMPUTE,
        },
        matrix=True,
    ),
    OpKind(
        "ConvTranspose2d",
        "conv2d",
        "ConvTranspose2dDeviceOperation",
        ("x", "weight", "bias?"),
        {
            **_WINDOW,
            "output_padding": [0, 0],
            "groups": 1,
            "in_channels": 1,
            "out_channels": 1,
            "activations": [],
            "prepared": False,
            **_COMPUTE,
        },
        matrix=True,
    ),
    OpKind("PrepareConvWeight", "conv_prepare", "PrepareConv2dWeights", ("weight",), {"groups": 1}),
    OpKind(
        "Pool2d",
        "pool",
        "Pool2D",
        ("x",),
        {
            **_WINDOW,
            "function": "max",
            "channels": 1,
            "ceil_mode": False,
            "count_include_pad": True,
            "divisor": None,
        },
    ),
    OpKind(
        "Upsample",
        "upsample",
        "UpSampleDeviceOperation",
        ("x",),  # x (N, H, W, C)
        {"scale": [1.0, 1.0], "out_size": None, "mode": "nearest", "align_corners": False},
    ),
    OpKind("Halo", "halo", "HaloDeviceOperation", ("x",), {**_WINDOW}),  # values unchanged
    # functions: chain as above.
    OpKind("Unary", "unary", "UnaryDeviceOperation", ("x",), {"functions": []}),
    # b or scalar; broadcast as numpy does. lhs/rhs/post: chains applied to a, to b, to the result.
    OpKind(
        "BinaryNg",
        "binary",
        "BinaryNgDeviceOperation",
        ("a", "b?"),
        {
            "function": "add",
            "scalar": None,
            "scalar_first": False,
            "lhs": [],
            "rhs": [],
            "post": [],
        },
    ),
    # where(a, b, c), addcmul/addcdiv(a, b, c, value), lerp(a, b, c), clamp(a, b=min, c=max).
    OpKind(
        "Ternary",
        "ternary",
        "TernaryDeviceOperation",
        ("a", "b?", "c?"),
        {"function": "where", "value": None, "b_scalar": None, "c_scalar": None},
    ),
    # sum | mean | max | min | prod | var | std (correction) | any | all
    OpKind(
        "Reduce",
        "reduce",
        "ReduceDeviceOperation",
        ("x",),
        {"function": "sum", "dims": [], "keepdim": False, "correction": 1, **_COMPUTE},
    ),
    OpKind(
        "Softmax",
        "softmax",
        "SoftmaxDeviceOperation",
        ("x", "mask?"),
        {"dim": -1, "scale": None, "numeric_stable": True, **_COMPUTE},
    ),
    # norm: layer | rms, over the last dimension; residual is added to x first.
    OpKind(
        "LayerNorm",
        "layernorm",
        "LayerNormDeviceOperation",
        ("x", "weight?", "bias?", "residual?"),
        {"norm": "layer", "eps": 1e-5, "operands": ["x"], "activations": [], **_COMPUTE},
    ),
    OpKind(
        "GroupNorm",
        "groupnorm",
        "GroupNormDeviceOperation",
        ("x", "weight?", "bias?"),
        {"groups": 1, "eps": 1e-5, "operands": ["x"], **_COMPUTE},
    ),  # x (N, 1, H*W, C)
    OpKind(
        "BatchNorm",
        "batchnorm",
        "BatchNormOperation",
        ("x", "mean", "var", "weight?", "bias?"),
        {"eps": 1e-5, "operands": ["x", "mean", "var"], **_COMPUTE},
    ),  # x (N, C, H, W)
    # config: None for blocks of one tile, or ttnn's SDPAProgramConfig as a mapping: "name", grid
    # [x, y], q_chunk_size, k_chunk_size. Blocks change the time, not the values.
    OpKind(
        "Sdpa",
        "sdpa",
        "SDPAOperation",
        ("q", "k", "v", "mask?"),
        {"scale": None, "causal": False, "config": None, **_COMPUTE},
        matrix=True,
    ),
    OpKind(
        "CreateQkvHeads",
        "heads",
        "NlpCreateHeadsDeviceOperation",
        ("x",),
        {"heads": 1, "kv_heads": 1, "transpose_k": False},
    ),  # (B,S,3*H) -> q, k, v (B,h,S,d)
    OpKind(
        "ConcatHeads", "heads", "NLPConcatHeadsDeviceOperation", ("x",), {}
    ),  # (B,h,S,d)->(B,S,h*d)
    # x * cos + rotate_half(x) * sin, rounded once.
    OpKind("RotaryEmbedding", "rope", "RotaryEmbedding", ("x", "cos", "sin"), {}),
    OpKind("Embeddings", "embedding", "EmbeddingsDeviceOperation", ("ids", "table"), {}),
    OpKind("Gather", "gather_scatter", "GatherDeviceOperation", ("x", "index"), {"dim": 0}),
    # x with src at the places of index along dim; reduce: None | add | multiply | amax | amin.
    OpKind(
        "Scatter",
        "gather_scatter",
        "ScatterDeviceOperation",
        ("x", "index", "src"),
        {"dim": 0, "reduce": None},
    ),
    OpKind(
        "Slice", "slice", "SliceDeviceOperation", ("x",), {"begins": [], "ends": [], "steps": []}
    ),  # one entry a dimension
    OpKind("Concat", "concat", "ConcatDeviceOperation", ("xs*",), {"dim": 0}),
    OpKind(
        "Pad", "pad", "PadDeviceOperation", ("x",), {"pads": [], "value": 0.0}
    ),  # [before, after] a dimension
    OpKind("Permute", "permute", "PermuteDeviceOperation", ("x",), {"dims": []}),
    OpKind("Transpose", "transpose", "TransposeDeviceOperation", ("x",), {"dims": [-2, -1]}),
    OpKind("Reshape", "reshape", "ReshapeViewDeviceOperation", ("x",), {}),  # to the output's shape
    OpKind("Repeat", "repeat", "RepeatDeviceOperation", ("x",), {"repeats": []}),
    OpKind("Typecast", "typecast", "TypecastDeviceOperation", ("x",), {}),
    OpKind("Tilize", "tilize", "TilizeWithValPaddingDeviceOperation", ("x",), {}),
    OpKind("Untilize", "untilize", "UntilizeWithUnpaddingDeviceOperation", ("x",), {}),
    OpKind(
        "InterleavedToSharded",
        "interleaved_to_sharded",
        "InterleavedToShardedDeviceOperation",
        ("x",),
        {},
    ),
    OpKind(
        "ShardedToInterleaved",
        "sharded_to_interleaved",
        "ShardedToInterleavedDeviceOperation",
        ("x",),
        {},
    ),
    OpKind("Reshard", "reshard", "ReshardDeviceOperation", ("x",), {}),
    OpKind("Copy", "copy", "CopyDeviceOperation", ("x",), {}),
    OpKind(
        "ArgMax",
        "argmax",
        "ArgMaxDeviceOperation",
        ("x",),
        {"dim": None, "keepdim": False, "largest": True},
    ),
    OpKind(
        "TopK",
        "topk",
        "TopKDeviceOperation",
        ("x",),  # -> values, indices
        {"k": 1, "dim": -1, "largest": True, "sorted": True},
    ),
    OpKind("Sort", "sort", "SortDeviceOperation", ("x",), {"dim": -1, "descending": False}),
    OpKind("CumSum", "cumsum", "AccumulationDeviceOperation", ("x",), {"dim": -1}),
    OpKind("Full", "full", "FullDeviceOperation", (), {"value": 0.0}),
    OpKind("Arange", "full", "ArangeDeviceOperation", (), {"start": 0, "end": 0, "step": 1}),
    # A torch operator that has no device lowering. args/kwargs: JSON, with {"input": i} for the
    # i-th operand, {"dtype": "..."}, {"call": target, ...} for a result that never leaves the host,
    # and the like; results: which of the operator's results are the outputs, None for all.
    OpKind(
        "Host",
        "host",
        "(torch)",
        ("xs*",),
        {"target": "", "args": [], "kwargs": {}, "results": None},
    ),
]

KINDS: Mapping[str, OpKind] = {kind.name: kind for kind in _TABLE}
