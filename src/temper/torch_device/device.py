"""The torch device "tt": ``x.to("tt")``, ``model.to("tt")``, ``y.cpu()``.

Tensors on it live in host memory; what a compiled graph does with them is the compiler's affair,
and every eager op on them is a host op that ``eager_ops`` counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import backend_registration

from temper.errors import TemperError
from temper.torch_device import module as device_module
from temper.torch_device.observer import Observer, eager_ops, set_observer
from temper.torch_device.storage import DEVICE, host_view, wrap, wrap_storage
from temper.torch_device.ties import keep_ties

__all__ = [
    "DEVICE",
    "Observer",
    "eager_ops",
    "ensure_registered",
    "host_view",
    "is_tt",
    "set_observer",
    "wrap",
]

_lock = threading.Lock()
_registered = False
# Registrations end when their Library objects die.
_keep: list[Any] = []
_fallback: Callable[..., Any] | None = None


def is_tt(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the device "tt"."""
    return tensor.device.type == DEVICE


def ensure_registered() -> None:
    """Make the device known to torch, once in this process; its kernels load with the first op."""
    global _registered
    if _registered:
        return
    with _lock:
        if _registered:
            return
        taken = torch._C._get_privateuse1_backend_name()
        if taken != "privateuseone":
            raise TemperError(
                f"the device 'tt' cannot be registered: torch has room for one added device and "
                f"{taken!r} has it",
                try_=["leave tensors on the CPU; torch.compile(model, backend='tt') works there"],
            )
        backend_registration._setup_privateuseone_for_python_backend(
            DEVICE, backend_module=device_module
        )
        # Before torch's own entry for added devices (23), which needs an allocator in C++.
        torch.serialization.register_package(15, _tag, _restore)
        keep_ties()
        everything: Any = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
        everything.fallback(_first_op, "PrivateUse1")
        _keep.append(everything)
        _registered = True


def _first_op(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands in for every kernel until the first op on the device is called."""
    global _fallback
    if _fallback is None:
        with _lock:
            if _fallback is None:
                from temper.torch_device import fallback as device_fallback
                from temper.torch_device import kernels as device_kernels

                device_kernels.register(_keep)
                _fallback = device_fallback.fallback
        # The op may have a kernel of its own by now.
        return op(*args, **kwargs)
    return _fallback(op, *args, **kwargs)


def _tag(storage: Any) -> str | None:
    return f"{DEVICE}:0" if storage.device.type == DEVICE else None


def _restore(storage: Any, location: str) -> Any:
    """What torch.load does with a storage that was saved from this device."""
    if location.partition(":")[0] == DEVICE:
        return wrap_storage(storage)
    return None
