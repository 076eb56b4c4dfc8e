"""How a transformers model computes attention and experts while a step of it is captured.

transformers lets an attention function be named in the config. Ours keeps what the chip has: causal
attention over a prompt, decode attention over a cache with a position, and the plain form where a
model asks for more (a soft cap, a position bias, sinks). Keys and values come unrepeated.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from temper.graph import cache_ops

NAME = "temper"


@dataclass
class CapturedStep:
    """What the attention function must know of the step that is captured.

    ``rows`` says that the users of a decode step lie in the rows of one sequence, (1, users, D).
    """

    slots: torch.Tensor | None = None  # decode: the position of each user's token in the cache
    rows: bool = False
    alone: bool = False  # the model has no keys but its cache's, whatever it makes of them
    angles: tuple[torch.Tensor, ...] = ()  # rotary angles that the host computes at each call
    served: list[torch.Tensor] = field(default_factory=list)  # keys that the cache handed out
    masked: list[tuple[int, bool]] = field(default_factory=list)  # other keys, and if with a mask

    def serves(self, key: torch.Tensor) -> bool:
        return self.alone or any(key is seen for seen in self.served)


_steps: list[CapturedStep] = []


def current_step() -> CapturedStep:
    """The step that is captured now."""
    return _steps[-1]


@contextlib.contextmanager
def attending(model: torch.nn.Module, step: CapturedStep, *, named: bool) -> Iterator[None]:
    """Let every part of the model use our experts for the time of a capture, and our attention
    where the model asks its config by name (``named``)."""
    configs = {id(c): c for m in model.modules() if (c := getattr(m, "config", None)) is not None}
    latent = [m for m in model.modules() if hasattr(m, "expand_kv")]
    local = [
        m
        for m in model.modules()
        if step.slots is not None and "bias" in m._buffers and hasattr(m, "attention_type")
    ]
    before = {
        key: (c._attn_implementation_internal, c._experts_implementation_internal)
        for key, c in configs.items()
        if hasattr(c, "_attn_implementation_internal")
    }
    _steps.append(step)
    compiled, model._compiled_call_impl = model._compiled_call_impl, None
    try:
        for module in local:
            module.__dict__["bias"] = _Shown(module, step)
        for module in latent:
            module.__dict__["expand_kv"] = functools.partial(_expanded, module)
        for key in before:
            if named:
                configs[key]._attn_implementation_internal = NAME
            configs[key]._experts_implementation_internal = NAME
        yield
    finally:
        _steps.pop()
        model._compiled_call_impl = compiled
        for module in local:
            module.__dict__.pop("bias", None)
        for module in latent:
            module.__dict__.pop("expand_kv", None)
        for key, (attention, experts) in before.items():
            configs[key]._attn_implementation_internal = attention
            configs[key]._experts_implementation_internal = experts


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    position_bias: torch.Tensor | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of one layer; the result is (batch, sequence, heads, depth)."""
    step = _steps[-1]
    scale = float(query.shape[-1] ** -0.5 if scaling is None else scaling)
    plain = softcap is None and position_bias is None and s_aux is None
    cached = step.serves(key)
    if cached and step.slots is not None:
        heads = query.transpose(1, 2) if step.rows else query.permute(2, 0, 1, 3)
        if plain and attention_mask is None:
            made = cache_ops.sdpa_decode(
                heads.contiguous(), key, value, step.slots, scale, int(sliding_window or 0)
            )
            return (made if step.rows else made.transpose(0, 1)), None
        users = heads.permute(1, 2, 0, 3)  # (users, heads, 1, depth)
        open_ = _places(key.shape[2], step.slots[:, None], sliding_window)[:, None, None]
        made = _written_out(users, key, value, open_, scale, softcap, position_bias, s_aux)
        return (made.permute(2, 0, 1, 3) if step.rows else made.transpose(1, 2)), None
    step.masked.append((int(key.shape[2]), attention_mask is not None))
    length = query.shape[2]
    causal = cached and length > 1
    wide = sliding_window is not None and sliding_window < length
    if plain and not (causal and (wide or attention_mask is not None)):
        made = F.scaled_dot_product_attention(
            query, key, value, attention_mask, is_causal=causal, scale=scale, enable_gqa=True
        )
        return made.transpose(1, 2), None
    mask = attention_mask
    if causal:
        mask = _places(length, torch.arange(length)[:, None], sliding_window)[None, None]
    if plain:
        made = F.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=True)
    else:
        made = _written_out(query, key, value, mask, scale, softcap, position_bias, s_aux)
    return made.transpose(1, 2), None


class _Shown:
    """The table from which GPT-Neo's layers cut the rows of their queries: here by slots."""

    def __init__(self, module: Any, step: CapturedStep) -> None:
        self._window = module.config.window_size if module.attention_type == "local" else None
        self._step = step

    def __getitem__(self, cut: tuple[slice, ...]) -> torch.Tensor:
        assert self._step.slots is not None
        return _places(cut[-1].stop, self._step.slots[:, None], self._window)[:, None, None]


def _expanded(
    module: Any, latent: torch.Tensor, turned: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of latent attention, joined instead of written into an empty tensor."""
    users, _, length, _ = latent.shape
    depths = [module.qk_nope_head_dim, module.v_head_dim]
    both = module.kv_b_proj(latent).view(users, length, -1, sum(depths)).transpose(1, 2)
    keys, values = torch.split(both, depths, dim=-1)
    return torch.cat((keys, turned.expand(-1, keys.shape[1], -1, -1)), dim=-1), values


def _places(count: int, queries: torch.Tensor, window: int | None) -> torch.Tensor:
    """Which keys each query may see: none behind it, and none that left its window."""
    keys = torch.arange(count)
    seen = keys <= queries
    return seen if window is None else seen & (keys > queries - window)


def _written_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    softcap: float | None,
    position_bias: torch.Tensor | None,
    s_aux: torch.Tensor | None,
) -> torch.Tensor:
    """Attention with a soft cap, a bias or sinks, which the chip's fused op has not."""
    shared = query.shape[1] // key.shape[1]
    if shared > 1:
        key, value = (
            x[:, :, None].expand(-1, -1, shared, -1, -1).flatten(1, 2) for x in (key, value)
        )
    scores = torch.matmul(query, key.transpose(-1, -2)) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if position_bias is not None:
        scores = scores + position_bias
    if mask is not None and mask.dtype is torch.bool:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores + mask
    if s_aux is not None:
        sinks = s_aux.reshape(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], 1)
        scores = torch.cat([scores, sinks.to(scores.dtype)], dim=-1)
    shares = torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype)
    if s_aux is not None:
        shares = shares[..., :-1]
    return torch.matmul(shares, value)


def experts(
    self: Any,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """Experts as sparse matmuls over all of them; an expert that no token chose is skipped."""
    tokens, count = hidden_states.shape[0], self.num_experts
    active = min(count, tokens * top_k_index.shape[-1])
    routed = torch.zeros(tokens, count, dtype=top_k_weights.dtype)
    routed = routed.scatter(1, top_k_index, top_k_weights)
    chosen = routed.abs().amax(dim=0)
    turned = getattr(self, "is_transposed", False)

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        matrix = weight if turned else weight.transpose(-1, -2)
        made: torch.Tensor = cache_ops.sparse_matmul(x, matrix, chosen, active)
        return made if bias is None else made + bias[:, None]

    biased = getattr(self, "has_bias", False)
    if getattr(self, "has_gate", True):
        both = linear(hidden_states, self.gate_up_proj, self.gate_up_proj_bias if biased else None)
        made = self._apply_gate(both)
    else:
        made = self.act_fn(
            linear(hidden_states, self.up_proj, self.up_proj_bias if biased else None)
        )
    made = linear(made, self.down_proj, self.down_proj_bias if biased else None)
    total: torch.Tensor = (made * routed.t()[:, :, None]).sum(dim=0)
    return total.to(hidden_states.dtype)


ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
ALL_EXPERTS_FUNCTIONS.register(NAME, experts)
