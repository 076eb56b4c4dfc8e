"""``torch.autocast("tt")``: matmuls and convolutions in bfloat16, losses in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from temper.torch_device.storage import DEVICE

aten = torch.ops.aten
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]

# The ops that torch's CPU autocast lowers, less those that exist for the CPU alone.
_LOWER = (
    aten.conv1d.default, aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding,
    aten.conv3d.default, aten.conv3d.padding, aten.conv_transpose1d.default,
    aten.conv_transpose2d.input, aten.conv_transpose3d.input,
    aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default,
    aten.addbmm.default, aten.matmul.default, aten.linear.default,
    aten.scaled_dot_product_attention.default,
)  # fmt: skip
_FLOAT32 = (
    aten.mse_loss.default, aten.l1_loss.default, aten.smooth_l1_loss.default,
    aten.huber_loss.default, aten.kl_div.default, aten.nll_loss.default, aten.nll_loss2d.default,
    aten.cross_entropy_loss.default, aten.binary_cross_entropy_with_logits.default,
    aten.poisson_nll_loss.default, aten.cosine_embedding_loss.default,
)  # fmt: skip
_WIDEST = (aten.cat.default, aten.stack.default)


def register(keep: list[Any]) -> None:
    """Give torch the casting kernels; every other op passes through."""
    everything: Any = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for ops, choose in (
        (_LOWER, lambda _: torch.get_autocast_dtype(DEVICE)),
        (_FLOAT32, lambda _: torch.float32),
        (_WIDEST, _widest),
    ):
        for op in ops:
            library.impl(op, _casting(op, choose), "AutocastPrivateUse1")
    keep += [everything, library]


def _casting(op: Any, choose: Callable[[Any], torch.dtype]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            dtype = choose(args)
            cast_args = [_cast(value, dtype) for value in args]
            return op(*cast_args, **{name: _cast(v, dtype) for name, v in kwargs.items()})

    return kernel


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, (list, tuple)):
        return [_cast(item, dtype) for item in value]
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        # float64 is never lowered, as on torch's other devices.
        return value if value.dtype is torch.float64 else value.to(dtype)
    return value


def _widest(args: Any) -> torch.dtype:
    dtypes = [tensor.dtype for tensor in args[0] if tensor.is_floating_point()]
    if not dtypes:
        return torch.float32
    found: torch.dtype = dtypes[0]
    for dtype in dtypes[1:]:
        found = torch.promote_types(found, dtype)
    return found
