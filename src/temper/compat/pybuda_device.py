"""PyBuda's devices: the stages of a pipeline, in the order in which a script makes them."""

from __future__ import annotations

import os
import queue
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from temper import chips
from temper.compat.missing import note
from temper.compat.pybuda_compiled import CompiledPipeline, flat, plain
from temper.compat.pybuda_config import global_compiler_config
from temper.compat.pybuda_formats import (
    BOARDS,
    BackendDevice,
    BackendType,
    activation,
    as_member,
)
from temper.compat.pybuda_module import torch_module
from temper.errors import UsageError

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


class Device(ABC):
    """One stage: modules run in the order in which they were placed, on what was pushed to it."""

    all: ClassVar[list[Device]] = []

    def __init__(self, name: str, module: Any = None) -> None:
        self.name = name
        self.modules: list[Any] = []
        self.inputs: queue.Queue[Inputs] = queue.Queue()
        self._subgraph: int | None = None
        Device.all.append(self)
        if module is not None:
            self.place_module(module)

    def place_module(self, module: Any) -> None:
        self.modules += list(module) if isinstance(module, (list, tuple)) else [module]

    def remove_modules(self) -> None:
        self.modules.clear()

    def push_to_inputs(self, *tensors: Any) -> None:
        """Tensors, one tuple or list of them, or one mapping of argument names to them."""
        self.inputs.put(as_inputs(tensors[0] if len(tensors) == 1 else tensors))

    def set_active_subgraph(self, index: int) -> None:
        """With several modules placed, the one that runs from now on."""
        if not 0 <= index < len(self.modules):
            raise UsageError(f"no subgraph {index}: {len(self.modules)} module(s) are placed")
        self._subgraph = index

    def get_active_subgraph(self) -> int:
        return self._subgraph or 0

    def active(self) -> list[Any]:
        if self._subgraph is None and not vars(global_compiler_config())["compile_subgraphs"]:
            return self.modules
        return self.modules[self.get_active_subgraph() :][:1]

    def run(self, inputs: Inputs, verify_cfg: Any = None) -> list[torch.Tensor]:
        """One input through the modules; the outputs of one are the arguments of the next."""
        args, kwargs = inputs
        for module in self.active():
            args, kwargs = tuple(flat(self.call(module, args, kwargs, verify_cfg))), {}
        return list(args)

    @abstractmethod
    def call(self, module: Any, args: Any, kwargs: Any, verify_cfg: Any) -> Any:
        """One module on its arguments."""


class CPUDevice(Device):
    """Modules that a script places on the host itself."""

    def __init__(self, name: str = "cpu0", module: Any = None, **_: Any) -> None:
        super().__init__(name, module)

    def call(self, module: Any, args: Any, kwargs: Any, verify_cfg: Any) -> Any:
        with torch.no_grad():
            return torch_module(module).eval()(*map(plain, args), **kwargs)


class TTDevice(Device):
    """A chip by architecture. Modules are placed on it, inputs pushed to it.

    ``fp32_fallback`` names the format that float32 becomes. Without it float32 stays float32
    through elementwise ops, also on Grayskull.
    """

    def __init__(
        self, name: str = "tt0", num_chips: int | None = None, chip_ids: Any = None,
        arch: Any = None, devtype: Any = None, device_mode: Any = None, optimizer: Any = None,
        scheduler: Any = None, fp32_fallback: Any = None, mp_context: Any = None,
        module: Any = None, param_fp32_fallback: Any = None,
    ) -> None:  # fmt: skip
        if num_chips not in (None, 0, 1) or (chip_ids is not None and len(chip_ids) > 1):
            raise UsageError("Temper models a single chip", try_="num_chips=1")
        if optimizer is not None:
            raise UsageError("Temper compiles inference; training runs eagerly on the device 'tt'")
        self.arch = as_member(BackendDevice, arch) or available_arch()
        self.devtype = as_member(BackendType, devtype) or BackendType.Silicon
        self.fp32_fallback = fp32_fallback
        self._compiled: dict[Any, CompiledPipeline] = {}
        super().__init__(name, module)

    def options(self) -> dict[str, Any]:
        """The chip and the activation format that the device asks for."""
        options: dict[str, Any] = {"chip": self.board()}
        if self.fp32_fallback is not None:
            options["activation_dtype"] = activation(self.fp32_fallback)
        return options

    def board(self) -> str:
        """--chip of the command line, else the usual board of the architecture."""

        asked = os.environ.get("TEMPER_CHIP")
        if not asked:
            return BOARDS.get(self.arch, "e75")
        chip = chips.get(asked)
        if chip.arch != self.arch.value:
            note(f"arch {asked}", f"the script names {self.arch.name}; {chip.name} was asked for")
        return chip.name

    def call(self, module: Any, args: Any, kwargs: Any, verify_cfg: Any) -> Any:
        inner = torch_module(module)
        options = {**global_compiler_config().to_options(), **self.options()}
        key = (id(inner), *sorted((name, str(value)) for name, value in options.items()))
        if key not in self._compiled:
            self._compiled[key] = CompiledPipeline(inner, options)
        made = self._compiled[key]
        made.verify_cfg = verify_cfg
        return made(*args, **kwargs)

    def compile_to_image(self, *_: Any, **__: Any) -> None:
        raise UsageError(
            "Temper writes no TTI images", try_="the option export_path, which writes the program"
        )


def make_tf_device(*args: Any, **kwargs: Any) -> TTDevice:
    """The guide's TFDevice."""
    note("TFDevice", "PyBuda has no TFDevice; taken as pybuda.TTDevice")
    return TTDevice(*args, **kwargs)


def available_arch() -> BackendDevice:
    """The architecture of --chip, else that of the device in use, else Grayskull."""

    if os.environ.get("TEMPER_CHIP"):
        return BackendDevice(chips.get(os.environ["TEMPER_CHIP"]).arch)
    used = [device.arch for device in Device.all if isinstance(device, TTDevice)]
    return used[-1] if used else BackendDevice.Grayskull


def as_inputs(item: Any) -> Inputs:
    """Arguments from one tensor, several, or a mapping such as a tokenizer's encoding."""
    if isinstance(item, Mapping):
        return (), dict(item)
    if hasattr(item, "keys") and hasattr(item, "__getitem__"):  # a BatchEncoding is no Mapping
        return (), {name: item[name] for name in item.keys()}  # noqa: SIM118
    return (tuple(item) if isinstance(item, (list, tuple)) else (item,)), {}
