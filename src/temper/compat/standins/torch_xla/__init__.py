"""torch_xla as tt-xla scripts use it, for the one virtual chip of this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from temper.compat.dynamo_names import register_if_late
from temper.compat.missing import getattr_for, note
from temper.compat.torch_device import take_xla_for_tt, tt_device
from temper.compat.xla_options import translate
from temper.options import resolve
from temper.options import set_custom_compile_options as _set_options

__version__ = torch.__version__.split("+")[0] + "+temper"
__all__ = [
    "compile", "core", "debug", "device", "device_count", "devices", "distributed",
    "experimental", "launch", "manual_seed", "real_devices", "runtime",
    "set_custom_compile_options", "step", "sync",
]  # fmt: skip


def set_custom_compile_options(options: Mapping[str, Any]) -> None:
    """Options of every later compile; a wrong name or value is an error."""
    _set_options(translate(options))


def device(index: int | None = None) -> torch.device:
    """The virtual chip."""
    return tt_device(index)


def devices() -> list[torch.device]:
    return [tt_device(None)]


def real_devices() -> list[str]:
    return ["TT:0"]


def device_count() -> int:
    return 1


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Calls run at once on the virtual chip, so there is nothing to wait for."""
    if resolve()["export_path"]:
        note(
            "export_path of eager ops",
            "export_path writes the graphs that torch.compile makes; ops that run by themselves "
            "on the device make none",
        )


@contextlib.contextmanager
def step() -> Iterator[None]:
    yield


def compile(
    f: Callable[..., Any] | None = None,
    full_graph: bool = False,
    name: str | None = None,
    **_: Any,
) -> Any:
    """A function as it is: eager calls on the chip need no step marker here."""
    return f if f is not None else contextlib.nullcontext()


def launch(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
) -> None:
    """Runs ``fn(0, *args)`` in this process: one chip, one process."""
    fn(0, *args)


def manual_seed(seed: int, device: Any = None) -> None:
    torch.manual_seed(seed)


from . import core, debug, distributed, experimental, runtime  # noqa: E402

register_if_late()
take_xla_for_tt()
__getattr__ = getattr_for(__name__)
