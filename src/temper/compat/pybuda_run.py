"""PyBuda's devices, compile and run functions on the virtual chip."""

from __future__ import annotations

import os
import queue
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from temper.compat import pybuda_config as config
from temper.compat.missing import note
from temper.compat.pybuda_module import Tensor, torch_module
from temper.errors import TemperError, UsageError


@dataclass
class VerifyConfig:
    """Compare with the host: ``pcc`` 0.99 when unset, else tolerances."""

    enabled: bool = True
    intermediates: bool = True
    rtol: Any = None
    atol: Any = None
    relative_atol: float = 0.1
    pcc: float | None = None
    verify_all: bool = False
    verify_last: bool = True
    devtype: config.BackendType = config.BackendType.Golden
    arch: config.BackendDevice = config.BackendDevice.Grayskull
    test_kind: Any = None
    fp32_fallback: config.DataFormat = config.DataFormat.Float16_b
    epochs: int = 1
    run_golden: bool = True


class TTDevice:
    """A chip by architecture. Modules are placed on it, inputs pushed to it.

    ``fp32_fallback`` names the format that float32 becomes. Without it float32 stays float32
    through elementwise ops, also on Grayskull.
    """

    current: TTDevice | None = None

    def __init__(
        self, name: str = "tt0", num_chips: int | None = None, chip_ids: Any = None,
        arch: Any = None, devtype: Any = None, device_mode: Any = None, optimizer: Any = None,
        scheduler: Any = None, fp32_fallback: Any = None, mp_context: Any = None,
        module: Any = None,
    ) -> None:  # fmt: skip
        if num_chips not in (None, 1) or (chip_ids is not None and len(chip_ids) > 1):
            raise UsageError("Temper models a single chip", try_="num_chips=1")
        self.name = name
        self.arch = config.as_member(config.BackendDevice, arch) or config.BackendDevice.Grayskull
        self.devtype = config.as_member(config.BackendType, devtype)
        self.fp32_fallback = fp32_fallback
        self.modules: list[Any] = []
        self.inputs: queue.Queue[tuple[Any, ...]] = queue.Queue()
        TTDevice.current = self
        if module is not None:
            self.place_module(module)

    def place_module(self, module: Any) -> None:
        """Modules run in the order in which they were placed."""
        self.modules += list(module) if isinstance(module, (list, tuple)) else [module]

    def push_to_inputs(self, *tensors: Any) -> None:
        first = tensors[0] if len(tensors) == 1 else tensors
        self.inputs.put(tuple(first) if isinstance(first, (list, tuple)) else (first,))

    def options(self) -> dict[str, Any]:
        """The chip and the activation format that the device asks for."""
        options: dict[str, Any] = {"chip": self.board()}
        if self.fp32_fallback is not None:
            options["activation_dtype"] = config.activation(self.fp32_fallback)
        return options

    def board(self) -> str:
        """--chip of the command line, else the usual board of the architecture."""
        from temper import chips

        asked = os.environ.get("TEMPER_CHIP")
        if not asked:
            return config.BOARDS.get(self.arch, "e75")
        chip = chips.get(asked)
        if chip.arch != self.arch.value:
            note(f"arch {asked}", f"the script names {self.arch.name}; {chip.name} was asked for")
        return chip.name


class CPUDevice:
    """Accepted for scripts that place part of a model on the host themselves."""

    def __init__(self, name: str = "cpu0", module: Any = None, **_: Any) -> None:
        self.name = name
        self.modules = [] if module is None else [module]

    def place_module(self, module: Any) -> None:
        self.modules.append(module)


def make_tf_device(*args: Any, **kwargs: Any) -> TTDevice:
    """The guide's TFDevice."""
    note("TFDevice", "PyBuda has no TFDevice; taken as pybuda.TTDevice")
    return TTDevice(*args, **kwargs)


class CompiledPipeline:
    """What ``compile`` returns: calls like the module."""

    def __init__(self, module: Any, device: TTDevice, compiler_cfg: config.CompilerConfig,
                 verify_cfg: VerifyConfig | None) -> None:  # fmt: skip
        import temper

        self.module = torch_module(module).eval()
        self.device = device
        self.verify_cfg = verify_cfg
        self.compiled = temper.compile(
            self.module, **{**compiler_cfg.to_options(), **device.options()}
        )

    @property
    def options(self) -> Any:
        return self.compiled.options

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        plain = [i.as_subclass(torch.Tensor) if isinstance(i, Tensor) else i for i in inputs]
        with torch.no_grad():
            found = self.compiled(*plain, **kwargs)
            if self.verify_cfg is not None and self.verify_cfg.enabled:
                verify(found, self.module(*plain, **kwargs), self.verify_cfg)
        return found

    forward = __call__


def compile(
    module: Any, sample_inputs: Any = None, device: TTDevice | None = None,
    compiler_cfg: config.CompilerConfig | None = None, verify_cfg: VerifyConfig | None = None,
    **others: Any,
) -> CompiledPipeline:  # fmt: skip
    """The guide's ``pybuda.compile``: a callable; the sample inputs fix the first shape."""
    note(
        "compile",
        "PyBuda's own pybuda.compile is a module (its function is run_inference, its successor "
        "forge.compile); taken as a function that returns a callable",
    )
    unknown = sorted(set(others) - {"module_name", "name", "training", "optimizer", "attach_to"})
    if unknown:
        raise UsageError(
            f"pybuda.compile has no argument {unknown[0]!r}",
            allowed=["module", "sample_inputs", "device", "compiler_cfg", "verify_cfg"],
        )
    if others.get("training"):
        raise UsageError("Temper compiles inference; training runs eagerly on the device 'tt'")
    made = CompiledPipeline(
        module, device or TTDevice.current or TTDevice(),
        compiler_cfg or config.global_compiler_config(), verify_cfg,
    )  # fmt: skip
    if sample_inputs is not None:
        made(*_arguments(sample_inputs))
    return made


def run_inference(
    module: Any = None, inputs: Sequence[Any] = (), input_count: int = 1,
    output_queue: Any = None, _sequential: bool = False, _perf_trace: bool = False,
    _verify_cfg: VerifyConfig | None = None, **_: Any,
) -> Any:  # fmt: skip
    """Runs placed modules, or ``module``, over the inputs; a queue yields lists of outputs."""
    device = TTDevice.current if module is None else TTDevice(module=module)
    if device is None or not device.modules:
        raise UsageError(
            "no module is placed on a device",
            try_=["run_inference(module, inputs=[...])", "TTDevice('tt0', module=module)"],
        )
    for item in inputs:
        device.push_to_inputs(*_arguments(item))
    if input_count not in (1, device.inputs.qsize()):
        raise UsageError(
            f"input_count is {input_count}, but {device.inputs.qsize()} inputs are there",
            allowed=["1", str(device.inputs.qsize())],
        )
    outputs: Any = output_queue if output_queue is not None else queue.Queue()
    settings = config.global_compiler_config()
    stages = [CompiledPipeline(item, device, settings, _verify_cfg) for item in device.modules]
    while not device.inputs.empty():
        values: Any = device.inputs.get()
        for stage in stages:
            found = stage(*values)
            values = found if isinstance(found, (list, tuple)) else (found,)
        outputs.put([Tensor.create_from_torch(value) for value in values])
    return outputs


def verify(found: Any, golden: Any, settings: VerifyConfig) -> None:
    """PyBuda's check: correlation, and tolerances where they are given."""
    from temper.formats import pcc

    ours = found if isinstance(found, (list, tuple)) else [found]
    theirs = golden if isinstance(golden, (list, tuple)) else [golden]
    required = 0.99 if settings.pcc is None else settings.pcc
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        left, right = (t.detach().cpu().to(torch.float32) for t in (a, b))
        correlation = float(pcc(left.numpy(), right.numpy())) if right.numel() > 1 else 1.0
        close = settings.rtol is None and settings.atol is None
        close = close or torch.allclose(
            left, right, rtol=_number(settings.rtol), atol=_number(settings.atol)
        )
        if correlation < required or not close:
            raise TemperError(
                f"output {number} differs from the host: PCC {correlation:.6f}, "
                f"required {required:g}",
                try_=["a higher default_math_fidelity", "a wider data format"],
            )


def _number(tolerance: Any) -> float:
    return float(tolerance) if isinstance(tolerance, (int, float)) else 0.0


def _arguments(item: Any) -> tuple[Any, ...]:
    return tuple(item) if isinstance(item, (list, tuple)) else (item,)
