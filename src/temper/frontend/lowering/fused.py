"""Fused ops that the passes put into the graph: heads, rotary embedding, weight formats."""

from __future__ import annotations

from typing import Any

import torch

from temper.frontend.lowering.builder import Builder, Value
from temper.frontend.lowering.elementwise import result
from temper.frontend.lowering.registry import lowers
from temper.frontend.node import Node
from temper.frontend.weight_op import ensure_op_defined

ensure_op_defined()


def rotary_embedding(x: Any, cos: Any, sin: Any) -> Any:
    """x * cos + rotate_half(x) * sin."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def concat_heads(x: Any) -> Any:
    """(B, heads, S, d) to (B, S, heads * d)."""
    batch, heads, rows, width = x.shape
    return x.transpose(1, 2).reshape(batch, rows, heads * width)


def split_qkv_heads(x: Any, heads: int, kv_heads: int) -> Any:
    """(B, S, (heads + 2 kv_heads) * d) to q, k, v of (B, heads, S, d)."""
    batch, rows, _ = x.shape
    width = x.shape[-1] // (heads + 2 * kv_heads)
    parts = x.split([heads * width, kv_heads * width, kv_heads * width], dim=-1)
    return tuple(p.view(batch, rows, -1, width).transpose(1, 2) for p in parts)


@lowers(rotary_embedding)
def lower_rotary(b: Builder, node: Node) -> Value:
    shape, dtype = result(node)
    inputs = [b.plain(b[a]) for a in node.args]
    return b.emit("RotaryEmbedding", inputs, shape, dtype, name=node.name)


@lowers(concat_heads)
def lower_concat_heads(b: Builder, node: Node) -> Value:
    shape, dtype = result(node)
    return b.emit("ConcatHeads", [b.plain(b[node.args[0]])], shape, dtype, name=node.name)


@lowers(split_qkv_heads)
def lower_split_heads(b: Builder, node: Node) -> tuple[Value, ...]:
    x = b.plain(b[node.args[0]])
    return b.emit_many(
        "CreateQkvHeads",
        [x],
        [(v.shape, v.dtype) for v in node.meta["val"]],
        {"heads": node.args[1], "kv_heads": node.args[2]},
        name=node.name,
    )


@lowers(torch.ops.tt.weight_dtype_override.default)
def lower_override(b: Builder, node: Node) -> Value:
    return b[node.args[0]]
