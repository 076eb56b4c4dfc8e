"""The explicit kernels of the device "tt": only where torch needs the device's own answer.

That is making and sharing memory, copies, and the ops that torch splits by device. All else is
the fallback's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from temper.torch_device import autocast as device_autocast
from temper.torch_device import rnn as device_rnn
from temper.torch_device.fallback import fallback
from temper.torch_device.observer import clock_ns, note
from temper.torch_device.storage import (
    CPU_KERNEL,
    DEVICE,
    host_bytes,
    host_view,
    rebase,
    wrap,
    wrap_storage,
)

aten = torch.ops.aten


def _check_index(device: torch.device | None) -> None:
    if device is not None and device.index:
        raise RuntimeError(f"there is one device {DEVICE!r}, {DEVICE}:0; asked for {device}")


def _empty(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    _check_index(device)
    made = torch.empty(
        size,
        dtype=dtype,
        layout=layout or torch.strided,
        device="cpu",
        memory_format=memory_format or torch.contiguous_format,
    )
    return wrap(made)


def _empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    _check_index(device)
    return wrap(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _copy_from(
    source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    start_ns = clock_ns()
    host_source = host_view(source) if source.device.type == DEVICE else source
    host_target = host_view(target) if target.device.type == DEVICE else target
    host_target.copy_(host_source)
    note("aten::_copy_from", start_ns, [host_source], [host_target])
    return target


def _to_copy(source: torch.Tensor, **wanted: Any) -> Any:
    """A copy with another device or dtype; torch's own would pin non-blocking ones."""
    target = wanted.get("device") or source.device
    if target.type == source.device.type:
        return fallback(aten._to_copy.default, source, **{**wanted, "non_blocking": False})
    _check_index(target)
    start_ns = clock_ns()
    here = host_view(source) if source.device.type == DEVICE else source
    shape = wanted.get("memory_format") or torch.preserve_format
    made = here.to(wanted.get("dtype") or here.dtype, copy=True, memory_format=shape)
    note("aten::_copy_from", start_ns, [here], [made])
    if target.type == DEVICE:
        return wrap(made)
    return made if target.type == "cpu" else made.to(target)


def _copy_from_and_resize(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if target.size() != source.size():
        target.resize_(source.size())
    return _copy_from(source, target)


def _set_tensor(tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return _set_storage(
        tensor, source.untyped_storage(), source.storage_offset(), source.size(), source.stride()
    )


def _set_storage(
    tensor: torch.Tensor,
    storage: Any,
    offset: Any = 0,
    size: Sequence[int] | None = None,
    stride: Sequence[int] = (),
) -> torch.Tensor:
    host_bytes(storage)
    if size is None:
        size = (storage.nbytes() // tensor.element_size(),)
    return rebase(tensor, storage, offset, size, stride)


def _set_nothing(tensor: torch.Tensor) -> torch.Tensor:
    return rebase(tensor, wrap_storage(torch.empty(0).untyped_storage()), 0, (0,), (1,))


def _resize(
    tensor: torch.Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    host = host_view(tensor)
    fits = tensor.untyped_storage().nbytes()
    wanted = torch.empty(size, dtype=tensor.dtype, device="meta")
    if memory_format is not None:
        wanted = wanted.to(memory_format=memory_format)
    needed = (tensor.storage_offset() + wanted.numel()) * tensor.element_size()
    if needed <= fits:
        storage: Any = tensor.untyped_storage()
        return rebase(tensor, storage, tensor.storage_offset(), size, wanted.stride())
    made = torch.empty_strided(size, wanted.stride(), dtype=tensor.dtype)
    flat = host.reshape(-1)
    made.as_strided((made.numel(),), (1,))[: flat.numel()].copy_(flat)
    return rebase(tensor, wrap_storage(made.untyped_storage()), 0, size, wanted.stride())


def _share(op: Any) -> Callable[..., Any]:
    """A view is the same metadata arithmetic on every device: use the CPU's."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return op.redispatch(CPU_KERNEL, *args, **kwargs)

    return kernel


def _convolution(*args: Any) -> Any:
    return fallback(aten.convolution.default, *args)


def _convolution_backward(
    grad: torch.Tensor,
    input_: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> Any:
    bias_sizes = [weight.size(1) * groups if transposed else weight.size(0)]
    return fallback(
        aten.convolution_backward.default,
        grad, input_, weight, bias_sizes, stride, padding, dilation, transposed,
        output_padding, groups, mask,
    )  # fmt: skip


_SHARED = (
    aten.as_strided.default,
    aten.view.default,
    aten._reshape_alias.default,
    aten.unfold.default,
    aten.view_as_real.default,
    aten.view_as_complex.default,
)

KERNELS: dict[str, Callable[..., Any]] = {
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "_copy_from": _copy_from,
    "_to_copy": _to_copy,
    "_copy_from_and_resize": _copy_from_and_resize,
    "set_.source_Tensor": _set_tensor,
    "set_.source_Storage": _set_storage,
    "set_.source_Storage_storage_offset": _set_storage,
    "set_": _set_nothing,
    "resize_": _resize,
    "convolution_overrideable": _convolution,
    "convolution_backward_overrideable": _convolution_backward,
    # Their out= kernels, which torch would call, warn that they resize.
    "mse_loss": partial(fallback, aten.mse_loss.default),
    "smooth_l1_loss": partial(fallback, aten.smooth_l1_loss.default),
    **device_rnn.KERNELS,
    **{op._schema.name.removeprefix("aten::"): _share(op) for op in _SHARED},
}


def register(keep: list[Any]) -> None:
    """Give torch the kernels; ``keep`` holds the libraries for the life of the process."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for name, kernel in KERNELS.items():
        library.impl(name, kernel, "PrivateUse1")
    for bit in ("Conjugate", "Negative"):
        # torch resolves a lazy bit by a copy, which must not resolve it first.
        library.impl("_copy_from", torch.library.fallthrough_kernel, bit)
    if torch.version.cuda is None and torch.version.hip is None:
        # DataLoader(pin_memory=True) asks the accelerator for pinned memory: any will do for us.
        library.impl("_pin_memory", lambda tensor, device=None: tensor.clone(), "CPU")
    device_autocast.register(keep)
    keep.append(library)
