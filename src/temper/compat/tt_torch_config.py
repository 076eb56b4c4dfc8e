"""tt-torch's CompilerConfig and BackendOptions, mapped to Temper's compile options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from temper.compat.settings import Settings
from temper.errors import UsageError


class CompileDepth(IntEnum):
    """How far tt-torch goes; everything before execution compiles and costs without running."""

    TORCH_FX = 1
    STABLEHLO = 2
    TTNN_IR = 3
    COMPILE_OP_BY_OP = 4
    EXECUTE_OP_BY_OP = 5
    EXECUTE = 6
    EXECUTE_CPP = 7


class OpByOpBackend(IntEnum):
    TORCH = 1
    STABLEHLO = 2


# Settings of tt-torch's class that decide how its own compiler dumps or checks; they change no
# number and no time here.
_WITHOUT_EFFECT = {
    "apply_environment_overrides": True, "automatic_parallelization": False,
    "cache_preprocessed_constants": False, "device_map": None, "dump_binary": False,
    "dump_info": False, "enable_async": False,
    "enable_golden": False, "enable_intermediate_verification": False, "mesh_shape": None,
    "model_name": "", "op_by_op_backend": OpByOpBackend.TORCH, "profile_ops": True,
    "push_outputs_to_cpu": True, "record_property": None, "results_path": "results/models/",
    "single_op_timeout": 30, "typecast_inputs": True, "verify_op_by_op": False,
}  # fmt: skip
_WITH_EFFECT = {
    "compile_depth": CompileDepth.EXECUTE, "consteval_parameters": None, "enable_consteval": None,
    "enable_optimizer": False, "enable_trace": None, "optimization_level": None,
}  # fmt: skip


class CompilerConfig(Settings):
    """Settings as attributes; a name that tt-torch does not have is an error."""

    package = "tt_torch"
    with_effect = _WITH_EFFECT
    without_effect = _WITHOUT_EFFECT

    def to_options(self) -> dict[str, Any]:
        """tt-mlir's optimizer is what level 1 and up switch on."""
        config: Mapping[str, Any] = vars(self)
        options: dict[str, Any] = {}
        folding = [config["enable_consteval"], config["consteval_parameters"]]
        if any(value is not None for value in folding):
            options["enable_const_eval"] = any(folding)
        if config["enable_optimizer"]:
            options["optimization_level"] = 1
        if config["optimization_level"] is not None:
            options["optimization_level"] = config["optimization_level"]
        if config["enable_trace"] is not None:
            options["enable_trace"] = config["enable_trace"]
        if config["compile_depth"] < CompileDepth.EXECUTE_OP_BY_OP:
            options["dry_run"] = True
        return options


class BackendOptions:
    """What ``torch.compile(..., options=)`` takes in tt-torch; there is one device here."""

    def __init__(
        self,
        compiler_config: CompilerConfig | None = None,
        devices: Sequence[Any] = (),
        async_mode: bool = False,
        **others: Any,
    ) -> None:
        self.compiler_config = compiler_config or CompilerConfig()
        self.devices = list(devices) or [None]
        self.async_mode = async_mode
        self.__dict__.update(others)


def backend(module: Any, example_inputs: Sequence[Any], options: Any = None, **_: Any
            ) -> Callable[..., Any]:  # fmt: skip
    """tt-torch's Dynamo backend, running on the virtual chip."""
    from temper.runtime.backend import tt

    return tt(module, example_inputs, options=options_of(options))


def options_of(options: Any) -> dict[str, Any]:
    """Compile options from any of the forms that scripts pass."""
    if options is None:
        return {}
    if isinstance(options, BackendOptions):
        if len(options.devices) > 1:
            raise UsageError(f"{len(options.devices)} devices: Temper models a single chip")
        return options.compiler_config.to_options()
    if isinstance(options, CompilerConfig):
        return options.to_options()
    if isinstance(options, Mapping):
        return dict(options)
    raise UsageError(
        f"options of type {type(options).__name__}",
        allowed=["BackendOptions", "CompilerConfig", "a mapping of option names"],
    )
