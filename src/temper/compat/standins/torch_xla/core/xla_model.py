"""torch_xla.core.xla_model (usually ``xm``) for one chip and one process."""

from __future__ import annotations

import os
from typing import Any

import torch

from temper.compat.missing import getattr_for
from temper.compat.torch_device import tt_device

__all__ = [
    "REDUCE_SUM",
    "add_step_closure",
    "all_gather",
    "all_reduce",
    "broadcast_master_param",
    "get_local_ordinal",
    "get_memory_info",
    "get_ordinal",
    "get_rng_state",
    "get_xla_supported_devices",
    "is_master_ordinal",
    "is_xla_tensor",
    "mark_step",
    "master_print",
    "mesh_reduce",
    "optimizer_step",
    "reduce_gradients",
    "rendezvous",
    "save",
    "send_cpu_data_to_device",
    "set_rng_state",
    "unlazy",
    "wait_device_ops",
    "xla_device",
    "xla_device_hw",
    "xla_device_kind",
    "xla_real_devices",
    "xrt_world_size",
]  # fmt: skip


REDUCE_SUM = "sum"


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """The virtual chip."""
    return tt_device(n)


def xla_device_hw(device: Any) -> str:
    return "CPU" if torch.device(device).type == "cpu" else "TT"


def xla_device_kind(device: Any = None) -> str:
    """The chip's architecture."""
    from temper import chips
    from temper.options import resolve

    return chips.get(resolve()["chip"]).arch


def xla_real_devices(devices: Any = None) -> list[str]:
    return ["TT:0"]


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    """Whether it is on the chip."""
    return tensor.device.type == "tt"


def send_cpu_data_to_device(datas: Any, device: Any, input_sharding: Any = None) -> list[Any]:
    return [data.to(device) for data in datas]


def all_reduce(reduce_type: str, inputs: Any, *_: Any, **__: Any) -> Any:
    """Over one chip the sum is the value itself."""
    return inputs


def all_gather(value: Any, dim: int = 0, *_: Any, **__: Any) -> Any:
    return value


def reduce_gradients(optimizer: Any, *_: Any, **__: Any) -> None:
    """There is one set of gradients."""


def broadcast_master_param(model: Any) -> None:
    """There is one copy of the parameters."""


def mesh_reduce(tag: str, data: Any, reduce_fn: Any) -> Any:
    return reduce_fn([data])


def add_step_closure(closure: Any, args: Any = (), run_async: bool = False) -> None:
    """Steps are over at once."""
    closure(*args)


def unlazy(tensors: Any) -> None:
    """Nothing is lazy here."""


def get_xla_supported_devices(devkind: str | None = None, max_devices: int | None = None
                              ) -> list[str]:  # fmt: skip
    return ["tt:0"] if devkind in (None, "TT", "tt") else []


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """Calls run at once on the virtual chip."""


def wait_device_ops(devices: Any = ()) -> None:
    """Nothing is ever pending."""


def xrt_world_size(defval: int = 1) -> int:
    return 1


def get_ordinal(defval: int = 0) -> int:
    return 0


def get_local_ordinal(defval: int = 0) -> int:
    return 0


def is_master_ordinal(local: bool = True) -> bool:
    return True


def master_print(*args: Any, **kwargs: Any) -> None:
    kwargs.pop("fd", None)
    kwargs.pop("local", None)
    print(*args, **kwargs)


def optimizer_step(optimizer: Any, barrier: bool = False, optimizer_args: Any = None,
                   groups: Any = None, pin_layout: bool = True) -> Any:  # fmt: skip
    return optimizer.step(**(optimizer_args or {}))


def rendezvous(tag: str, payload: bytes = b"", replicas: Any = ()) -> list[bytes]:
    return [payload]


def save(data: Any, file_or_path: str | os.PathLike[str], master_only: bool = True,
         global_master: bool = False) -> None:  # fmt: skip
    """Saves with every tensor on the host, as torch_xla does."""
    torch.save(_on_host(data), file_or_path)


def set_rng_state(seed: int, device: Any = None) -> None:
    torch.manual_seed(seed)


def get_rng_state(device: Any = None) -> int:
    return torch.initial_seed()


def get_memory_info(device: Any = None) -> dict[str, int]:
    """Bytes of the chip's DRAM."""
    from temper import chips
    from temper.options import resolve

    chip = chips.get(resolve()["chip"])
    return {"bytes_used": 0, "bytes_limit": chip.dram_total_bytes, "peak_bytes_used": 0}


def _on_host(data: Any) -> Any:
    from torch.utils import _pytree as pytree

    def move(item: Any) -> Any:
        return item.cpu() if isinstance(item, torch.Tensor) else item

    return pytree.tree_map(move, data)


__getattr__ = getattr_for(__name__)
