"""Tensors of the device "tt": plain torch tensors over host memory that their storage keeps alive.

No class of ours is involved: a subclass of Tensor breaks FakeTensor and backward, one of
UntypedStorage breaks deepcopy. torch keeps a storage's Python object as long as the storage itself
lives, so an attribute of that object holds the host memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

DEVICE = "tt"

# Sharing a storage between tensors is the same code on every device; torch has registered it for
# the CPU only.
CPU_KERNEL = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_set = torch.ops.aten.set_.source_Storage_storage_offset


def wrap_storage(host: Any) -> Any:
    """A storage on the device that shares the bytes of one on the host.

    ``host`` hangs on it as an attribute, and so do the two methods that torch would otherwise run
    with a C++ allocator of the device. Neither refers back to the storage: a cycle would keep the
    memory until the garbage collector comes by.
    """
    made: Any = torch._C._construct_storage_from_data_pointer(
        host.data_ptr(), torch.device(DEVICE, 0), host.nbytes()
    )
    made.host = host
    made.clone = partial(_cloned, host)
    made.__deepcopy__ = partial(_cloned, host)
    return made


def _cloned(host: Any, memo: object = None) -> Any:
    return wrap_storage(host.clone())


def host_bytes(storage: Any) -> Any:
    """The host storage behind one on the device."""
    host = getattr(storage, "host", None)
    if host is not None:
        return host
    if storage.device.type != DEVICE:
        raise RuntimeError(f"a tensor on {DEVICE}:0 cannot use a storage on {storage.device}")
    # torch's C++ made a second storage over the same memory, as it does to read and write files.
    return torch._C._construct_storage_from_data_pointer(
        storage.data_ptr(), torch.device("cpu"), storage.nbytes()
    )


def over(
    storage: Any,
    dtype: torch.dtype,
    offset: Any,
    size: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    """A tensor on the device over some elements of a storage."""
    empty: torch.Tensor = torch._C._acc.create_empty_tensor((0,), dtype)
    return rebase(empty, storage, offset, size, stride)


def rebase(
    tensor: torch.Tensor,
    storage: Any,
    offset: Any,
    size: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    """Point an existing tensor on the device at other elements."""
    moved: torch.Tensor = _set.redispatch(CPU_KERNEL, tensor, storage, offset, size, stride)
    return moved


def wrap(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on the device that shares the memory of a CPU tensor: no copy."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise RuntimeError(
            f"only a dense CPU tensor can be wrapped, not {tensor.layout} on {tensor.device}"
        )
    return over(
        wrap_storage(tensor.untyped_storage()),
        tensor.dtype,
        tensor.storage_offset(),
        tensor.size(),
        tensor.stride(),
    )


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor that shares the memory of a tensor on the device: no copy, no gradient."""
    host = host_bytes(tensor.untyped_storage())
    seen = torch.empty(0, dtype=tensor.dtype).set_(
        host, tensor.storage_offset(), tensor.size(), tensor.stride()
    )
    # Lazy conjugation and negation are bits of the tensor, not of the bytes.
    if tensor.is_conj():
        seen = seen.conj()
    return torch._neg_view(seen) if tensor.is_neg() else seen
