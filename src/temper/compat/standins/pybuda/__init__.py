"""pybuda as the tuning guide and TT-Buda's scripts use it, on the virtual chip."""

from __future__ import annotations

from typing import Any

from temper.compat.missing import getattr_for
from temper.compat.pybuda_config import (
    BackendDevice,
    BackendType,
    CompilerConfig,
    DataFormat,
    MathFidelity,
    reset_configuration,
    set_configuration_options,
)
from temper.compat.pybuda_module import Parameter, PyBudaModule, PyTorchModule, Tensor
from temper.compat.pybuda_run import CPUDevice, TTDevice, VerifyConfig, compile, run_inference
from temper.compat.pybuda_run import make_tf_device as TFDevice

from . import _C as _C
from . import config, op, verify

__version__ = "0.15.1+temper"
__all__ = [
    "BackendDevice", "BackendType", "CPUDevice", "CompilerConfig", "DataFormat", "MathFidelity",
    "Parameter", "PyBudaModule", "PyTorchModule", "TFDevice", "TTDevice", "Tensor", "VerifyConfig",
    "compile", "config", "detect_available_devices", "initialize_pipeline", "op", "pybuda_reset",
    "run_forward", "run_inference", "set_configuration_options", "shutdown", "sync", "verify",
]  # fmt: skip


def detect_available_devices() -> list[BackendDevice]:
    """The virtual chip, as the architecture that is in use."""
    return [TTDevice.current.arch if TTDevice.current else BackendDevice.Grayskull]


def initialize_pipeline(training: bool = False, *, sample_inputs: Any = (), **_: Any) -> None:
    """Compiles at the first run; training is not offered."""
    if training:
        raise NotImplementedError("Temper compiles inference only")


def run_forward(input_count: int = 1, **_: Any) -> Any:
    """Runs what was pushed to the device."""
    return run_inference(input_count=input_count)


def sync() -> None:
    """Calls run at once."""


def pybuda_reset() -> None:
    """Forgets devices and configuration."""
    TTDevice.current = None
    reset_configuration()


def shutdown() -> bool:
    pybuda_reset()
    return True


__getattr__ = getattr_for(__name__)
