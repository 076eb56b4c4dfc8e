"""The device "tt" for stand-ins that hand out devices, also where scripts call it "xla"."""

from __future__ import annotations

import functools
from typing import Any

import torch

from temper.errors import UsageError
from temper.torch_device.device import ensure_registered

_to = torch.Tensor.to
_library: list[torch.library.Library] = []


def tt_device(index: int | None) -> torch.device:
    """``torch.device("tt")``; there is one chip, number 0."""

    if index not in (None, 0):
        raise UsageError(f"device {index} does not exist: Temper models a single chip, number 0")
    ensure_registered()
    return torch.device("tt")


def take_xla_for_tt() -> None:
    """``tensor.to("xla")``, ``module.to("xla")`` and ``randn(..., device="xla")`` go to the chip.

    torch knows the name but has no such device. Its factories all ask for an empty tensor first.
    """

    @functools.wraps(_to)
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return _to(self, *map(_renamed, args), **{k: _renamed(v) for k, v in kwargs.items()})

    torch.Tensor.to = to  # type: ignore[method-assign,assignment]
    if not _library:
        library = torch.library.Library("aten", "IMPL", "XLA")  # type: ignore[no-untyped-call]
        library.impl("empty.memory_format", _empty)  # type: ignore[no-untyped-call]
        library.impl("empty_strided", _empty_strided)  # type: ignore[no-untyped-call]
        _library.append(library)


def _empty(size: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    return torch.empty(size, dtype=dtype, device=_renamed(device))


def _empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, device: Any = None, **_: Any
) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=_renamed(device))


def give_xla_back() -> None:
    """Let the device name "xla" be torch's own again."""
    torch.Tensor.to = _to  # type: ignore[method-assign]
    while _library:
        _library.pop()._destroy()  # type: ignore[no-untyped-call]


def _renamed(given: Any) -> Any:
    if isinstance(given, (str, torch.device)) and str(given).partition(":")[0] == "xla":
        return tt_device(int(str(given).partition(":")[2] or 0))
    return given
