"""Tensors of the device "tt": plain torch tensors over host memory that their storage keeps alive.

A subclass of Tensor would break FakeTensor and backward, so the only class of ours is the
storage's: torch keeps a storage's Python object as long as the storage itself lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

DEVICE = "tt"

# Sharing a storage between tensors is the same code on every device; torch has registered it for
# the CPU only.
CPU_KERNEL = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_set = torch.ops.aten.set_.source_Storage_storage_offset


class HostStorage(torch.UntypedStorage):
    """A storage that calls itself "tt" and whose bytes are those of ``host``.

    Its methods are what torch's own code calls on a storage to copy, save or load a tensor;
    torch's versions would ask the device for a C++ allocator.
    """

    host: Any  # torch.UntypedStorage, whose methods have no types

    def clone(self) -> HostStorage:
        return wrap_storage(self.host.clone())

    def cpu(self) -> Any:
        return self.host.clone()

    def copy_(self, source: Any, non_blocking: bool | None = None) -> Any:
        self.host.copy_(getattr(source, "host", source), bool(non_blocking))
        return self

    def resize_(self, size: int) -> Any:
        raise RuntimeError(
            f"a storage on {DEVICE!r} cannot be resized; make a new tensor, or resize it on the CPU"
        )

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        # torch.Tensor.__deepcopy__ insists on the exact class between this call and its set_(),
        # where as_host_storage gives it back.
        key = self._cdata
        if key not in memo:
            memo[key] = _construct(self.host.clone())
        return memo[key]

    def tolist(self) -> Any:
        return self.host.tolist()

    def __getitem__(self, index: Any) -> Any:
        return self.host[index]

    def _write_file(self, *args: Any) -> Any:
        return self.host._write_file(*args)

    def _set_from_file(self, *args: Any) -> Any:
        self.host._set_from_file(*args)
        return self


def _construct(host: Any) -> Any:
    made: Any = torch._C._construct_storage_from_data_pointer(
        host.data_ptr(), torch.device(DEVICE, 0), host.nbytes()
    )
    made.host = host
    return made


def wrap_storage(host: Any) -> HostStorage:
    """A storage on the device that shares the bytes of one on the host."""
    return as_host_storage(_construct(host))


def as_host_storage(storage: Any) -> HostStorage:
    """The storage itself, if its bytes are on the host through us."""
    if type(storage) is not HostStorage:
        if not hasattr(storage, "host"):
            raise RuntimeError(f"a tensor on {DEVICE}:0 cannot use a storage on {storage.device}")
        storage.__class__ = HostStorage
    found: HostStorage = storage
    return found


def over(
    storage: HostStorage,
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
    storage: HostStorage,
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
    with torch.no_grad():
        return over(
            wrap_storage(tensor.untyped_storage()),
            tensor.dtype,
            tensor.storage_offset(),
            tensor.size(),
            tensor.stride(),
        )


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor that shares the memory of a tensor on the device: no copy."""
    with torch.no_grad():
        return host_of(tensor)


def host_of(tensor: torch.Tensor) -> torch.Tensor:
    """``host_view`` for callers below autograd."""
    host = as_host_storage(tensor.untyped_storage()).host
    seen = torch.empty(0, dtype=tensor.dtype).set_(
        host, tensor.storage_offset(), tensor.size(), tensor.stride()
    )
    # Lazy conjugation and negation are bits of the tensor, not of the bytes.
    if tensor.is_conj():
        seen = seen.conj()
    return torch._neg_view(seen) if tensor.is_neg() else seen
