"""Closures over the native kernels, or None where the native library does not reach.

A plan object holds addresses, not tensors, so each keeps its tensors alive in ``plan.keep``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from temper import kernels
from temper.program import Op
from temper.targets.virtual.functions import Chain, parameters_of

Step = Callable[[], Any]
Tensor = torch.Tensor

_library: Any = kernels.native if hasattr(kernels.native, "ElementwisePlan") else None

_UNARY: dict[str, int] = _library.UNARY_CODES if _library else {}
_BINARY: dict[str, int] = _library.BINARY_CODES if _library else {}
_ROWS = {"layer": 0, "rms": 1, "softmax": 2, "rotary": 3, "attention": 4}
# Powers that have a function of their own.
_POWERS = {
    1.0: "identity",
    2.0: "square",
    3.0: "cube",
    0.5: "sqrt",
    -0.5: "rsqrt",
    -1.0: "reciprocal",
}
_MAX_DIMS = 6  # kMaxDims
# Rounding that the kernels fuse; block formats are quantised in a pass of their own.
FUSED_FORMATS = frozenset({"float32", "bfloat16"})


def _codes(chain: Chain) -> list[tuple[int, float, float]] | None:
    """The chain as (code, first, second) triples, or None if a function is not native."""
    result = []
    for name, given in chain:
        first, second = 0.0, 0.0
        if name == "pow":
            name = _POWERS.get(float(given[0]), name)  # noqa: PLW2901
        elif name == "sub":
            name, first = "add", -float(given[0])  # noqa: PLW2901
        elif name in ("hardtanh", "maximum", "minimum"):
            bounds = {"maximum": (*given, None), "minimum": (None, *given)}.get(name)
            first, second = parameters_of(name if bounds is None else "clamp", bounds or given)
            name = "clamp"  # noqa: PLW2901
        elif name in _UNARY:
            first, second = parameters_of(name, given)
        if name not in _UNARY:
            return None
        result.append((_UNARY[name], first, second))
    return result


def _walk(shape: Sequence[int], tensors: Sequence[Tensor], keep: int = 0) -> Any:
    """Common loop over ``shape`` for tensors broadcast to it: (sizes, strides of each), merged.

    The last ``keep`` dimensions are left out. None when more dimensions remain than a plan has.
    """
    outer = len(shape) - keep
    views = [t.expand(tuple(shape)) for t in tensors]
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in views]
    for dim in range(outer):
        size = shape[dim]
        if size == 1:
            continue
        steps = [view.stride(dim) for view in views]
        if sizes and all(s[-1] == step * size for s, step in zip(strides, steps, strict=True)):
            sizes[-1] *= size
            for s, step in zip(strides, steps, strict=True):
                s[-1] = step
        else:
            sizes.append(size)
            for s, step in zip(strides, steps, strict=True):
                s.append(step)
    if not sizes:
        sizes, strides = [1], [[1 if keep == 0 else 0] for _ in views]
    return (sizes, strides) if len(sizes) <= _MAX_DIMS else None


def elementwise(
    out: Tensor,
    operands: Sequence[Tensor],
    format_name: str,
    *,
    function: str = "none",
    value: float = 1.0,
    lhs: Chain | None = None,
    rhs: Chain | None = None,
    post: Chain | None = None,
) -> Any:
    """A plan for out = round(post(function(lhs(a), rhs(b), c))) with operands broadcast."""
    chains = [_codes(chain or []) for chain in (lhs, rhs, post)]
    if (
        _library is None
        or function not in _BINARY
        or any(chain is None for chain in chains)
        or any(t.dtype != torch.float32 for t in (out, *operands))
        or not out.is_contiguous()
        or out.numel() == 0
    ):
        return None
    loop = _walk(out.shape, [out, *operands])
    if loop is None:
        return None
    sizes, (out_strides, *strides) = loop
    if sizes != [1] and out_strides[-1] != 1:
        return None
    plan = _library.ElementwisePlan(
        out.data_ptr(),
        [t.data_ptr() for t in operands],
        sizes,
        strides,
        chains[0],
        chains[1],
        _BINARY[function],
        value,
        chains[2],
        format_name == "bfloat16",
    )
    plan.keep = (out, *operands)
    return plan


def strided_copy(out: Tensor, source: Tensor) -> Step:
    """Copy a view into a buffer; the native loop where rows are contiguous in both."""
    rows = out.dim() > 0 and source.stride(-1) == 1 and source.shape[-1] >= 16
    plan = elementwise(out, [source], "float32") if rows and out.shape == source.shape else None
    return plan if plan is not None else lambda: out.copy_(source)


def epilogue(out: Tensor, x: Tensor, bias: Tensor | None, chain: Chain, format_name: str) -> Any:
    """+ bias along the last dimension, a chain, a rounding: one pass."""
    if bias is None:
        return elementwise(out, [x], format_name, post=chain)
    return elementwise(out, [x, bias], format_name, function="add", post=chain)


def epilogue_from(
    out: Tensor, bias: Tensor | None, chain: Chain, format_name: str
) -> Callable[[Tensor], Any] | None:
    """The same from a contiguous tensor that is known only at the call."""
    plan: Any = epilogue(out, out, bias, chain, format_name)
    if plan is None:
        return None
    run_from = plan.run_from
    return lambda x: run_from(x.data_ptr())


def _rows(
    kind: str,
    out: Tensor,
    operands: Sequence[Tensor],
    format_name: str,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 0.0,
    scale: float = 1.0,
    mask_splat: bool = False,
    post: Chain | None = None,
) -> Any:
    codes = _codes(post or [])
    vectors = [t for t in (weight, bias) if t is not None]
    if (
        _library is None
        or codes is None
        or out.dim() == 0
        or out.numel() == 0
        or not out.is_contiguous()
        or any(t.dtype != torch.float32 for t in (out, *operands, *vectors))
        or any(not t.is_contiguous() for t in vectors)
        or any(
            t.shape[-1:] != out.shape[-1:] or (t.stride(-1) != 1 and t.shape[-1] != 1)
            for t in (operands[:1] if mask_splat else operands)
        )
    ):
        return None
    loop = _walk(out.shape, operands, keep=1)
    if loop is None:
        return None
    sizes, strides = loop
    plan = _library.RowPlan(
        _ROWS[kind],
        out.data_ptr(),
        [t.data_ptr() for t in operands],
        sizes,
        strides,
        out.shape[-1],
        *(0 if t is None else t.data_ptr() for t in (weight, bias)),
        eps,
        scale,
        mask_splat,
        codes,
        format_name == "bfloat16",
    )
    plan.keep = (out, *operands, weight, bias)
    return plan


def softmax(
    out: Tensor,
    x: Tensor,
    scale: float,
    mask: Tensor | None,
    format_name: str,
    kind: str = "softmax",
) -> Any:
    """softmax(x * scale + mask) over the last dimension, rounded; of the kind ``attention`` a row
    of nothing but minus infinity gives zeros."""
    if mask is None:
        return _rows(kind, out, [x], format_name, scale=scale)
    splat = mask.dim() == 0 or mask.shape[-1] == 1 or mask.stride(-1) == 0
    return _rows(kind, out, [x, mask], format_name, scale=scale, mask_splat=splat)


def norm(
    out: Tensor,
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    kind: str,
    eps: float,
    chain: Chain,
    format_name: str,
) -> Any:
    """Layer or rms norm of x + residual over the last dimension, a chain, a rounding."""
    operands = [x] if residual is None else [x, residual]
    return _rows(kind, out, operands, format_name, weight=weight, bias=bias, eps=eps, post=chain)


def rotary(out: Tensor, x: Tensor, cos: Tensor, sin: Tensor, format_name: str) -> Any:
    """x * cos + rotate_half(x) * sin, rounded; not in place."""
    return _rows("rotary", out, [x, cos, sin], format_name) if x.shape[-1] % 2 == 0 else None


def pool(out: Tensor, x: Tensor, op: Op, format_name: str) -> Any:
    """A max or average pool of (N, C, H, W) in channels-last memory."""
    batch, channels, in_h, in_w = x.shape
    rows = x.permute(0, 2, 3, 1)
    if _library is None or op.attr("ceil_mode") or not rows.is_contiguous():
        return None
    top, bottom, left, right = op.attr("padding")
    spans = [d * (k - 1) + 1 for k, d in zip(op.attr("kernel"), op.attr("dilation"), strict=True)]
    out_h = (in_h + top + bottom - spans[0]) // op.attr("stride")[0] + 1
    out_w = (in_w + left + right - spans[1]) // op.attr("stride")[1] + 1
    if out.numel() != batch * out_h * out_w * channels:
        return None
    sizes = [
        batch,
        in_h,
        in_w,
        channels,
        out_h,
        out_w,
        *op.attr("kernel"),
        *op.attr("stride"),
        top,
        left,
        *op.attr("dilation"),
        bottom,
        right,
    ]
    plan = _library.PoolPlan(
        out.data_ptr(),
        x.data_ptr(),
        sizes,
        op.attr("function") == "max",
        bool(op.attr("count_include_pad")),
        float(op.attr("divisor") or 0.0),
        format_name == "bfloat16",
    )
    plan.keep = (out, x)
    return plan
