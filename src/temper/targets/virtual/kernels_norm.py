"""Host kernels of reductions and normalisations: float32 inside, one rounding at the end."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from temper.errors import CompileError
from temper.program import Op
from temper.targets.virtual import native
from temper.targets.virtual.builder import Emitter, kernel
from temper.targets.virtual.functions import apply, stages
from temper.targets.virtual.kernels_data import as_shape, in_place_or_new

Tensor = torch.Tensor


def named_operands(op: Op, inputs: list[Tensor], default: tuple[str, ...]) -> dict[str, Tensor]:
    """Optional operands by name: attrs["operands"] where given, else the table's order."""
    names = op.attrs.get("operands") or default[: len(inputs)]
    return dict(zip(names, inputs, strict=True))


_REDUCE: dict[str, Callable[[Tensor, list[int], Op], Tensor]] = {
    "sum": lambda x, dims, op: torch.sum(x, dims),
    "mean": lambda x, dims, op: torch.mean(x.to(torch.float32), dims),
    "max": lambda x, dims, op: torch.amax(x, dims),
    "min": lambda x, dims, op: torch.amin(x, dims),
    "var": lambda x, dims, op: torch.var(x, dims, correction=op.attr("correction")),
    "std": lambda x, dims, op: torch.std(x, dims, correction=op.attr("correction")),
    "any": lambda x, dims, op: torch.any(x != 0, dims) if dims else torch.any(x != 0),
    "all": lambda x, dims, op: torch.all(x != 0, dims) if dims else torch.all(x != 0),
    "prod": lambda x, dims, op: _prod(x, dims),
}


def _prod(x: Tensor, dims: list[int]) -> Tensor:
    for dim in sorted((d % x.dim() for d in dims), reverse=True):
        x = torch.prod(x, dim)
    return x


@kernel("Reduce")
def reduce(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: reduced in float32 over the dims (all when none are named), rounded once. The chip's
    partial sums in a bfloat16 Dest are not followed."""
    name, x = op.attr("function"), inputs[0]
    if name not in _REDUCE:
        raise CompileError(f"no host kernel for the reduction {name!r}", allowed=sorted(_REDUCE))
    function = _REDUCE[name]
    dims = list(op.attr("dims")) or list(range(x.dim()))
    if not x.dim():
        x, dims = x.reshape(1), [0]
    return [b.compute(op, lambda: function(x, dims, op))]


@kernel("Softmax")
def softmax(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: softmax(x * scale + mask) in float32 with the maximum taken off, rounded once."""
    x, dim, scale = inputs[0], op.attr("dim"), op.attr("scale")
    mask = inputs[1] if len(inputs) > 1 else None
    target = b.spec(op.outputs[0]).format
    if dim in (-1, x.dim() - 1):
        out = in_place_or_new(b, op, 0)
        step = native.softmax(out, x, 1.0 if scale is None else scale, mask, target)
        if step is not None:
            b.emit_fused(step, out, target)
            return [out]

    def compute() -> Tensor:
        y = x if scale is None else x * scale
        return torch.softmax(y if mask is None else y + mask, dim)

    return [b.compute(op, compute, out=b.in_place(op, 0))]


@kernel("LayerNorm")
def layer_norm(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: x + residual, then (x - mean) / sqrt(var + eps) * weight + bias over the last
    dimension (rms: x / sqrt(mean(x^2) + eps) * weight + bias), activations, all in float32,
    rounded once."""
    named = named_operands(op, inputs, ("x", "weight", "bias", "residual"))
    x, weight, bias = named["x"], named.get("weight"), named.get("bias")
    residual, eps, rms = named.get("residual"), op.attr("eps"), op.attr("norm") == "rms"
    chain = stages(op.attr("activations"))
    size = x.shape[-1]
    weight, bias = _vector(b, weight, size), _vector(b, bias, size)
    target = b.spec(op.outputs[0]).format
    out = in_place_or_new(b, op, 0)
    step = native.norm(out, x, residual, weight, bias, op.attr("norm"), eps, chain, target)
    if step is not None:
        b.emit_fused(step, out, target)
        return [out]

    def compute() -> Tensor:
        y = x if residual is None else x + residual
        if rms:
            y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)
            y = y if weight is None else y * weight
            y = y if bias is None else y + bias
        else:
            y = F.layer_norm(y, (size,), weight, bias, eps)
        return apply(y, chain)

    return [b.compute(op, compute, out=out)]


@kernel("GroupNorm")
def group_norm(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: x (N, 1, H*W, C) normalised over H*W and the channels of each group, scaled and
    shifted a channel, in float32, rounded once."""
    named = named_operands(op, inputs, ("x", "weight", "bias"))
    x, groups, eps = named["x"], op.attr("groups"), op.attr("eps")
    channels = x.shape[-1]
    weight, bias = (_vector(b, named.get(part), channels) for part in ("weight", "bias"))
    flat = as_shape(b, x, (x.shape[0], -1, channels))

    def compute() -> Tensor:
        y = F.group_norm(flat.transpose(1, 2), groups, weight, bias, eps)
        return y.transpose(1, 2)

    return [b.compute(op, compute, out=b.in_place(op, 0))]


@kernel("BatchNorm")
def batch_norm(b: Emitter, op: Op, inputs: list[Tensor]) -> list[Tensor]:
    """Rule: (x - mean) / sqrt(var + eps) * weight + bias a channel of (N, C, H, W), in float32,
    rounded once."""
    named = named_operands(op, inputs, ("x", "mean", "var", "weight", "bias"))
    x, eps = named["x"], op.attr("eps")
    channels = x.shape[1]
    mean, var, weight, bias = (
        _vector(b, named.get(part), channels) for part in ("mean", "var", "weight", "bias")
    )

    def compute() -> Tensor:
        return F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)

    return [b.compute(op, compute, out=b.in_place(op, 0))]


def _vector(b: Emitter, tensor: Tensor | None, size: int) -> Tensor | None:
    return None if tensor is None else as_shape(b, tensor, (size,))
