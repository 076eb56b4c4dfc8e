"""Rotary embeddings as tables that a step looks up by position, made by the model's own code.

A table of ``length`` positions is two rows of DRAM a position; computing angles, sines and cosines
anew at every step would be a dozen ops. Variants that depend on the length (dynamic, longrope) are
asked for short and for long positions apart, as they answer while a text grows.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F


@contextlib.contextmanager
def tables(model: torch.nn.Module, length: int) -> Iterator[None]:
    """Replace the model's rotary modules by lookups while a step is captured."""
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    found = [m for m in model.modules() if _is_rotary(m)]
    try:
        for module in found:
            module.forward = _lookup(module, length, dtype)
        yield
    finally:
        for module in found:
            module.__dict__.pop("forward", None)


def _is_rotary(module: torch.nn.Module) -> bool:
    if not type(module).__name__.endswith("RotaryEmbedding") or "forward" in module.__dict__:
        return False
    names = list(inspect.signature(module.forward).parameters)
    return names[:2] == ["x", "position_ids"] and set(names[2:]) <= {"layer_type"}


def _lookup(
    module: torch.nn.Module, length: int, dtype: torch.dtype
) -> Callable[..., tuple[torch.Tensor, ...]]:
    config = getattr(module, "config", None)
    kinds: list[Any] = [None]
    if "layer_type" in inspect.signature(module.forward).parameters:
        kinds = list(dict.fromkeys(getattr(config, "layer_types", None) or [None]))
    made = {kind: _angles(module, config, length, dtype, kind) for kind in kinds}

    def lookup(x: Any, position_ids: torch.Tensor, layer_type: Any = None) -> Any:
        return tuple(F.embedding(position_ids, table) for table in made[layer_type])

    return lookup


def _angles(
    module: torch.nn.Module, config: Any, length: int, dtype: torch.dtype, kind: Any
) -> tuple[torch.Tensor, ...]:
    """Cosines and sines of the positions 0 to length, as the model's own code gives them."""
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get(kind, rope) if kind is not None else rope
    short = rope.get("original_max_position_embeddings") or getattr(
        config, "max_position_embeddings", None
    )
    short = min(int(short or length), length)
    given = {} if kind is None else {"layer_type": kind}
    held = dict(module.__dict__)
    buffers = {k: None if v is None else v.clone() for k, v in module._buffers.items()}
    parts = []
    with torch.no_grad():
        for start, stop in ((0, short), (short, length)):
            if stop > start:
                places = torch.arange(start, stop)[None]
                parts.append(module.forward(torch.zeros((), dtype=dtype), places, **given))
    module._buffers.update(buffers)  # variants of growing length change themselves
    module.__dict__.update(held)
    return tuple(torch.cat([part[i][0] for part in parts]) for i in range(len(parts[0])))
