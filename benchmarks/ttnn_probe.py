"""Ask the real ttnn, on a mocked device, what one op allocates. Runs inside the mock's Python.

Reads a JSON list of cases from standard input and writes one JSON object a case and line:
``{"cb": bytes of circular buffers a core, "tensor": bytes the op's output takes in all banks,
"ops": [device op names]}`` or ``{"error": text}``.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

warnings.filterwarnings("ignore")
import ttnn  # type: ignore[import-not-found]  # noqa: E402
from ttnn._ttnn import graph  # type: ignore[import-not-found]  # noqa: E402

FORMATS = {
    "bfloat16": ttnn.bfloat16,
    "bfloat8_b": ttnn.bfloat8_b,
    "bfloat4_b": ttnn.bfloat4_b,
    "float32": ttnn.float32,
    "uint32": ttnn.uint32,
}
KEPT = ("size", "type", "core_range_set", "layout", "page_size", "num_cores", "globally_allocated")
STRATEGY = {
    "height": ttnn.ShardStrategy.HEIGHT,
    "width": ttnn.ShardStrategy.WIDTH,
    "block": ttnn.ShardStrategy.BLOCK,
}


def memory(shape: list[int], spec: Any) -> Any:
    """A memory config: "dram", "sram", or [sharding, grid x, grid y]."""
    if spec == "dram" or spec is None:
        return ttnn.DRAM_MEMORY_CONFIG
    if spec == "sram":
        return ttnn.L1_MEMORY_CONFIG
    sharding, x, y = spec
    return ttnn.create_sharded_memory_config(
        shape, core_grid=ttnn.CoreGrid(x=x, y=y), strategy=STRATEGY[sharding],
        orientation=ttnn.ShardOrientation.ROW_MAJOR,
    )  # fmt: skip


def tensor(device: Any, shape: list[int], fmt: str = "bfloat16", where: Any = "dram",
           layout: str = "tile") -> Any:  # fmt: skip
    rows = ttnn.TILE_LAYOUT if layout == "tile" else ttnn.ROW_MAJOR_LAYOUT
    return ttnn.zeros(
        shape, dtype=FORMATS[fmt], layout=rows, device=device, memory_config=memory(shape, where)
    )


def run(device: Any, case: dict[str, Any]) -> dict[str, Any]:
    op = case["op"]
    xs = [tensor(device, *t) for t in case["inputs"]]
    kwargs: dict[str, Any] = {}
    if "out" in case:
        kwargs["memory_config"] = memory(case.get("out_shape", []), case["out"])
    if "out_format" in case:
        kwargs["dtype"] = FORMATS[case["out_format"]]
    if case.get("fp32_acc") is not None:
        kwargs["compute_kernel_config"] = ttnn.init_device_compute_kernel_config(
            device.arch(), math_fidelity=ttnn.MathFidelity.HiFi4, math_approx_mode=False,
            fp32_dest_acc_en=case["fp32_acc"], packer_l1_acc=False,
        )  # fmt: skip
    calls = {
        "matmul": lambda: ttnn.matmul(*xs, **kwargs),
        "linear": lambda: ttnn.linear(xs[0], xs[1], bias=xs[2], **kwargs),
        "softmax": lambda: ttnn.softmax(xs[0], dim=-1, **kwargs),
        "layer_norm": lambda: ttnn.layer_norm(
            xs[0], weight=xs[1] if len(xs) > 1 else None, bias=xs[2] if len(xs) > 2 else None,
            **kwargs,
        ),
        "rms_norm": lambda: ttnn.rms_norm(xs[0], weight=xs[1], **kwargs),
        "sdpa": lambda: ttnn.transformer.scaled_dot_product_attention(
            *xs, is_causal=case.get("causal", False), program_config=attention(device, case),
            **kwargs,
        ),
        "embedding": lambda: ttnn.embedding(xs[0], xs[1], layout=ttnn.TILE_LAYOUT, **kwargs),
        "transpose": lambda: ttnn.transpose(xs[0], -1, -2, **kwargs),
        "permute": lambda: ttnn.permute(xs[0], case["dims"], **kwargs),
        "reshape": lambda: ttnn.reshape(xs[0], case["shape"], **kwargs),
        "concat": lambda: ttnn.concat(xs, dim=case.get("dim", -1), **kwargs),
        "slice": lambda: ttnn.slice(xs[0], case["begins"], case["ends"], **kwargs),
        "typecast": lambda: ttnn.typecast(xs[0], FORMATS[case["to"]], **kwargs),
        "untilize": lambda: ttnn.to_layout(xs[0], ttnn.ROW_MAJOR_LAYOUT, **kwargs),
        "tilize": lambda: ttnn.to_layout(xs[0], ttnn.TILE_LAYOUT, **kwargs),
        "move": lambda: ttnn.to_memory_config(
            xs[0], memory(case["inputs"][0][0], case["to"])
        ),
        "sum": lambda: ttnn.sum(xs[0], dim=case.get("dim", -1), **kwargs),
        "max": lambda: ttnn.max(xs[0], dim=case.get("dim", -1), **kwargs),
        "argmax": lambda: ttnn.argmax(xs[0], dim=-1),
        "topk": lambda: ttnn.topk(xs[0], case["k"]),
        "cumsum": lambda: ttnn.cumsum(xs[0], dim=-1),
        "split_qkv": lambda: ttnn.transformer.split_query_key_value_and_split_heads(
            xs[0], num_heads=case["heads"]
        ),
        "concat_heads": lambda: ttnn.transformer.concatenate_heads(xs[0]),
        "where": lambda: ttnn.where(*xs),
        "repeat": lambda: ttnn.repeat(xs[0], case["repeats"]),
        "pad": lambda: ttnn.pad(xs[0], case["pads"], 0.0),
        "group_norm": lambda: ttnn.group_norm(xs[0], num_groups=case["groups"]),
        "conv2d": lambda: conv2d(device, xs[0], case),
        "pool": lambda: ttnn.max_pool2d(
            input_tensor=xs[0], batch_size=case["batch"], input_h=case["h"], input_w=case["w"],
            channels=case["channels"], kernel_size=case["kernel"], stride=case["stride"],
            padding=case["padding"], dilation=[1, 1],
        ),
    }  # fmt: skip
    call = calls.get(op) or (lambda: getattr(ttnn, op)(*xs, **kwargs))
    device.disable_and_clear_program_cache()  # buffers are reported on a cache miss only
    device.enable_program_cache()
    graph.begin_graph_capture(graph.RunMode.NO_DISPATCH)
    try:
        call()
    finally:
        captured = graph.end_graph_capture()
    return figures(captured, case.get("verbose", False))


def attention(device: Any, case: dict[str, Any]) -> Any:
    if "blocks" not in case:
        return None
    rows, columns = case["blocks"]
    return ttnn.SDPAProgramConfig(
        compute_with_storage_grid_size=device.compute_with_storage_grid_size(),
        q_chunk_size=rows, k_chunk_size=columns, exp_approx_mode=False,
    )  # fmt: skip


def conv2d(device: Any, x: Any, case: dict[str, Any]) -> Any:
    c, o, groups = case["in_channels"], case["out_channels"], case.get("groups", 1)
    weight = ttnn.zeros([o, c // groups, *case["kernel"]], dtype=ttnn.float32,
                        layout=ttnn.ROW_MAJOR_LAYOUT)  # fmt: skip
    bias = ttnn.zeros([1, 1, 1, o], dtype=ttnn.float32, layout=ttnn.ROW_MAJOR_LAYOUT)
    config = ttnn.Conv2dConfig(weights_dtype=FORMATS[case.get("weight_format", "bfloat16")])
    return ttnn.conv2d(
        input_tensor=x, weight_tensor=weight, bias_tensor=bias if case.get("bias") else None,
        in_channels=c, out_channels=o, device=device, kernel_size=case["kernel"],
        stride=case["stride"], padding=case["padding"], dilation=case.get("dilation", [1, 1]),
        groups=groups, batch_size=case["batch"], input_height=case["h"], input_width=case["w"],
        conv_config=config,
    )  # fmt: skip


def figures(captured: Any, verbose: bool) -> dict[str, Any]:
    usage = ttnn.graph.extract_resource_usage_per_core(captured)
    ops, per_op, stack = [], [], []
    for node in captured:
        kind, params = node["node_type"], node["params"]
        if kind == "function_start" and "DeviceOperation" in params["name"]:
            stack.append({"name": params["name"], "buffers": []})
            ops.append(params["name"])
        elif kind == "function_end" and stack and params.get("name") == stack[-1]["name"]:
            per_op.append(stack.pop())
        elif kind in ("circular_buffer_allocate", "buffer_allocate", "dataflow_buffer_allocate"):
            entry = [kind, {k: v for k, v in params.items() if k in KEPT}]
            (stack[-1]["buffers"] if stack else per_op).append(entry)
    out = {
        "cb": usage.peak_cb + usage.peak_dataflow_buffer + usage.peak_scratchpad,
        "peak_sram": usage.peak_l1,
        "peak_total": usage.peak_total,
        "ops": ops,
    }
    if verbose:
        out["detail"] = per_op
        out["kinds"] = sorted({n["node_type"] for n in captured})
    return out


def main() -> None:
    cases = json.load(sys.stdin)
    device = ttnn.open_device(device_id=0, l1_small_size=32768)
    for case in cases:
        try:
            result = run(device, case)
        except Exception as error:  # whatever ttnn refuses is a result here
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            at = next((i for i, line in enumerate(lines) if line.startswith("info:")), -1)
            result = {"error": lines[at + 1 if at + 1 < len(lines) else 0][:300] if lines else "?"}
        print("RESULT " + json.dumps(result, default=str), flush=True)
    ttnn.close_device(device)


if __name__ == "__main__":
    main()
