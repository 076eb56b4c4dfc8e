"""Rotary embeddings as tables that a step looks up by position, made by the model's own code.

A table of ``length`` positions is two rows of DRAM a position; computing angles, sines and cosines
anew at every step would be a dozen ops. Where a call's longest position changes the angles of all
(dynamic, longrope), the host computes them at each call and the step takes them as inputs.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from temper.frontdoor.language.attention import current_step


@contextlib.contextmanager
def tables(model: torch.nn.Module, length: int) -> Iterator[None]:
    """Replace the model's rotary modules by lookups while a step is captured."""
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    found = [m for m in model.modules() if _is_rotary(m)]
    homes = {name: sys.modules[name] for m in found if (name := type(m).__module__)}
    held = {name: vars(home).get(_COMPLEX) for name, home in homes.items()}
    first = 0
    try:
        for module in found:
            if _grows(module):
                module.forward = _from_inputs(module, first)
                first += 2 * len(_kinds(module))
            else:
                module.forward = _lookup(module, length, dtype)
                if _is_complex(module):
                    setattr(sys.modules[type(module).__module__], _COMPLEX, _turn_pairs)
        yield
    finally:
        for module in found:
            module.__dict__.pop("forward", None)
        for name, home in homes.items():
            if held[name] is not None:
                setattr(home, _COMPLEX, held[name])


def call_angles(model: torch.nn.Module, position_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What the rotary modules that look at a call's longest position give for it: step inputs."""
    if not looks_at_calls(model):
        return ()
    found = [m for m in model.modules() if _is_rotary(m) and _grows(m)]
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    like = torch.zeros((), dtype=dtype)
    made: list[torch.Tensor] = []
    with torch.no_grad():
        for module in found:
            for kind in _kinds(module):
                made.extend(module.forward(like, position_ids, **_named(kind)))
    return tuple(made)


def looks_at_calls(model: torch.nn.Module) -> bool:
    """Whether any rotary module's angles depend on the longest position of a call."""
    return any(_is_rotary(m) and _grows(m) for m in model.modules())


def _is_rotary(module: torch.nn.Module) -> bool:
    if not type(module).__name__.endswith("RotaryEmbedding") or "forward" in module.__dict__:
        return False
    names = list(inspect.signature(module.forward).parameters)
    return names[:2] == ["x", "position_ids"] and set(names[2:]) <= {"layer_type"}


def _grows(module: torch.nn.Module) -> bool:
    kind = getattr(module, "rope_type", "default")
    kinds = kind.values() if isinstance(kind, dict) else [kind]
    return any("dynamic" in str(one) or str(one) == "longrope" for one in kinds)


def _kinds(module: torch.nn.Module) -> list[Any]:
    if "layer_type" not in inspect.signature(module.forward).parameters:
        return [None]
    config = getattr(module, "config", None)
    return list(dict.fromkeys(getattr(config, "layer_types", None) or [None]))


def _named(kind: Any) -> dict[str, Any]:
    return {} if kind is None else {"layer_type": kind}


def _from_inputs(module: torch.nn.Module, first: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    starts = {kind: first + 2 * index for index, kind in enumerate(_kinds(module))}

    def taken(x: Any, position_ids: torch.Tensor, layer_type: Any = None) -> Any:
        start = starts[layer_type]
        return current_step().angles[start : start + 2]

    return taken


def _lookup(
    module: torch.nn.Module, length: int, dtype: torch.dtype
) -> Callable[..., tuple[torch.Tensor, ...]]:
    made = {kind: _angles(module, length, dtype, kind) for kind in _kinds(module)}

    def lookup(x: Any, position_ids: torch.Tensor, layer_type: Any = None) -> Any:
        rows = [F.embedding(position_ids, table) for table in made[layer_type]]
        return Turns(*rows) if _is_complex(module) else tuple(rows)

    return lookup


def _angles(
    module: torch.nn.Module, length: int, dtype: torch.dtype, kind: Any
) -> tuple[torch.Tensor, ...]:
    """Cosines and sines of the positions 0 to length, as the model's own code gives them."""
    with torch.no_grad():
        places = torch.arange(length)[None]
        made: Any = type(module).forward(
            module, torch.zeros((), dtype=dtype), places, **_named(kind)
        )
    if isinstance(made, torch.Tensor):  # one complex number a pair
        return made.real[0].repeat_interleave(2, -1), made.imag[0].repeat_interleave(2, -1)
    return tuple(part[0] for part in made)


# --- models that turn pairs as complex numbers ----------------------------------------------------

_COMPLEX = "apply_rotary_emb"  # their function (q, k, angles), in the module of their class


def _is_complex(module: torch.nn.Module) -> bool:
    source = inspect.getsource(type(module).forward)
    return "polar" in source and hasattr(sys.modules[type(module).__module__], _COMPLEX)


@dataclass(frozen=True)
class Turns:
    """Cosines and sines of complex angles, each twice, in the place of the complex tensor."""

    cos: torch.Tensor
    sin: torch.Tensor

    def to(self, *_: Any) -> Turns:
        """As models ask for it: nothing moves."""
        return self


def _turn_pairs(
    xq: torch.Tensor, xk: torch.Tensor, angles: Turns
) -> tuple[torch.Tensor, torch.Tensor]:
    """(a + bi)(cos + i sin) for neighbours a, b: the chip has no complex numbers."""
    depth = xq.shape[-1]
    swap = torch.zeros(depth, depth, dtype=xq.dtype)  # x @ swap is (-b, a)
    pair = torch.arange(0, depth, 2)
    swap[pair + 1, pair], swap[pair, pair + 1] = -1.0, 1.0
    cos, sin = angles.cos[:, None], angles.sin[:, None]
    made = [(x.float() * cos + (x @ swap).float() * sin).to(x.dtype) for x in (xq, xk)]
    return made[0], made[1]
