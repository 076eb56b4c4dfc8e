"""The torch device "tt": ``x.to("tt")``, ``model.to("tt")``, ``y.cpu()``.

Tensors on it live in host memory; what a compiled graph does with them is the compiler's affair,
and every eager op on them is a host op that ``eager_ops`` counts.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.utils import backend_registration

from temper.errors import TemperError
from temper.frontend import device_module
from temper.frontend.device_observer import Observer, eager_ops, set_observer
from temper.frontend.device_storage import DEVICE, host_view, wrap, wrap_storage

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
# Registrations end when their Library objects die.
_keep: list[Any] = []


def is_tt(tensor: torch.Tensor) -> bool:
    return tensor.device.type == DEVICE


def ensure_registered() -> None:
    """Make the device known to torch, once in this process."""
    if _keep:
        return
    with _lock:
        if _keep:
            return
        taken = torch._C._get_privateuse1_backend_name()
        if taken != "privateuseone":
            raise TemperError(
                f"the device 'tt' cannot be registered: torch has room for one added device and "
                f"{taken!r} has it",
                try_=["leave tensors on the CPU; torch.compile(model, backend='tt') works there"],
            )
        backend_registration._setup_privateuseone_for_python_backend(  # type: ignore[no-untyped-call]
            DEVICE, backend_module=device_module
        )
        # Before torch's own entry for added devices (23), which needs an allocator in C++.
        torch.serialization.register_package(15, _tag, _restore)
        from temper.frontend import device_kernels

        device_kernels.register(_keep)


def _tag(storage: Any) -> str | None:
    return f"{DEVICE}:0" if storage.device.type == DEVICE else None


def _restore(storage: Any, location: str) -> Any:
    """What torch.load does with a storage that was saved from this device."""
    if location.partition(":")[0] == DEVICE:
        return wrap_storage(storage)
    return None
