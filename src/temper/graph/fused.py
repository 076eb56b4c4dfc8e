"""Fused ops that the passes put into the graph, as the functions that they stand for."""

from __future__ import annotations

from typing import Any

import torch


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


def split_heads_decode(x: Any, heads: int, kv_heads: int) -> Any:
    """(1, B, (heads + 2 kv_heads) * d) to q, k, v of (1, B, heads, d)."""
    _, users, width = x.shape
    whole = x.view(1, users, heads + 2 * kv_heads, width // (heads + 2 * kv_heads))
    return tuple(whole.split([heads, kv_heads, kv_heads], dim=2))


def concat_heads_decode(x: Any) -> Any:
    """(1, B, heads, d) to (1, B, heads * d)."""
    return x.flatten(2)


def gather_rows(x: Any, places: Any) -> Any:
    """Rows of the last axis, counted over all others, at these places."""
    return x.reshape(-1, x.shape[-1])[places]


def lookup_tables(ids: Any, table: Any, limits: list[int]) -> Any:
    """Rows of several tables that stand below each other, a table for each column of the ids.

    Column ``i`` looks up rows ``limits[i]`` to ``limits[i + 1]``; columns that the ids do not have
    show the first row of theirs.
    """
    short = len(limits) - 1 - ids.shape[-1]
    places = torch.nn.functional.pad(ids, (0, short)) + torch.tensor(limits[:-1])
    return torch.nn.functional.embedding(places, table)


def lookup_apart(ids: Any, table: Any, limits: list[int]) -> Any:
    """Rows of several tables that stand below each other, table by table: (tables, samples, width).

    Column ``i`` of the ids looks up rows ``limits[i]`` to ``limits[i + 1]``; without limits all
    columns look up the same table.
    """
    places = ids + torch.tensor(limits[:-1]) if limits else ids
    return torch.nn.functional.embedding(places.t(), table)


def trim_columns(x: Any, width: int) -> Any:
    """The first columns, as a value of its own: maps are over it, not over what it was cut from."""
    return x[..., :width]
