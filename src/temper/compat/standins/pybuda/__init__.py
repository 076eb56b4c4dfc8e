"""pybuda as the tuning guide and TT-Buda's scripts use it, on the virtual chip."""

from __future__ import annotations

from typing import Any

from temper.compat.missing import getattr_for
from temper.compat.pybuda_config import CompilerConfig, set_configuration_options
from temper.compat.pybuda_device import CPUDevice, TTDevice, available_arch
from temper.compat.pybuda_device import make_tf_device as TFDevice
from temper.compat.pybuda_formats import (
    BackendDevice,
    BackendType,
    CompileDepth,
    DataFormat,
    MathFidelity,
    PerfTraceLevel,
)
from temper.compat.pybuda_module import (
    JaxModule,
    OnnxModule,
    Parameter,
    PyBudaModule,
    PyTorchModule,
    Tensor,
    TFGraphDefModule,
    TFLiteModule,
    TFModule,
)
from temper.compat.pybuda_overrides import OVERRIDES
from temper.compat.pybuda_run import (
    compile,
    get_parameter_checkpoint,
    initialize_pipeline,
    run_forward,
    run_generate,
    run_generative_inference,
    run_inference,
    update_device_parameters,
)
from temper.compat.pybuda_run import refuse_training as run_training
from temper.compat.pybuda_run import reset as pybuda_reset
from temper.compat.pybuda_verify import VerifyConfig

from . import _C as _C
from . import config, op, pybudaglobal, tensor, utils, verify
from ._C import k_dim

__version__ = "0.15.1+temper"
globals().update(OVERRIDES)
run_backward = run_optimizer = run_schedulers = run_training
__all__ = [  # noqa: PLE0604 - all are strings
    "BackendDevice", "BackendType", "CPUDevice", "CompileDepth", "CompilerConfig", "DataFormat",
    "JaxModule", "MathFidelity", "OnnxModule", "Parameter", "PerfTraceLevel", "PyBudaModule",
    "PyTorchModule", "TFDevice", "TFGraphDefModule", "TFLiteModule", "TFModule", "TTDevice",
    "Tensor", "VerifyConfig", "compile", "config", "detect_available_devices", "error_raised",
    "get_parameter_checkpoint", "initialize_pipeline", "k_dim", "op", "pybuda_reset",
    "pybudaglobal", "run_backward", "run_forward", "run_generate", "run_generative_inference",
    "run_inference", "run_optimizer", "run_schedulers", "run_training",
    "set_configuration_options", "shutdown", "sync", "tensor", "transformers",
    "update_device_parameters", "utils", "verify", *OVERRIDES,
]  # fmt: skip


def detect_available_devices() -> list[BackendDevice]:
    """The virtual chip: the architecture of --chip, else that in use, else Grayskull."""
    return [available_arch()]


def sync() -> None:
    """Calls run at once."""


def shutdown() -> bool:
    pybuda_reset()
    return True


def error_raised() -> Any:
    return False


__getattr__ = getattr_for(__name__)
