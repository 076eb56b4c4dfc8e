"""tt-torch's CompilerConfig and BackendOptions, mapped to Temper's compile options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """What splits a model into single ops."""

    TORCH = 1
    STABLEHLO = 2


# Settings of tt-torch's class that decide how its own compiler dumps or checks; they change no
# number and no time here.
_WITHOUT_EFFECT: dict[str, Any] = {
    "_enable_intermediate_verification": False, "_verify_op_by_op": False,
    "apply_environment_overrides": True, "arg_type_map_override": False,
    "automatic_parallelization": False, "cache_preprocessed_constants": False,
    "check_all_ops_execute": False, "device_map": None, "dump_binary": False, "dump_debug": False,
    "dump_info": False, "enable_async": False, "enable_golden": False,
    "enable_intermediate_verification": False, "inline_parameters": False, "mesh_shape": None,
    "model_group": "", "model_name": "", "op_by_op_backend": OpByOpBackend.TORCH,
    "output_mlir_dir": "model_mlir", "profile_ops": True, "push_outputs_to_cpu": True,
    "record_property": None, "results_path": "results/models/", "runtime_intermediate_cache": None,
    "save_mlir_override": None, "single_op_timeout": 30, "stable_hlo_ops": [],
    "stablehlo_mlir_module": None, "torch_mlir_module": None, "typecast_inputs": True,
    "unique_ops": {}, "valid_dialects": ["STABLEHLO", "TTIR", "TTNN"], "verify_op_by_op": False,
}  # fmt: skip
_WITH_EFFECT = {
    "compile_depth": CompileDepth.EXECUTE, "consteval_parameters": None, "enable_consteval": None,
    "enable_optimizer": False, "enable_program_cache": None, "enable_trace": None,
    "optimization_level": None, "trace_region_size": None,
}  # fmt: skip
# Names and records of tests, which nobody expects to have an effect.
_FOR_RECORDS = ("model_group", "model_name", "record_property", "results_path")


class CompilerConfig(Settings):
    """Settings as attributes; a name that tt-torch does not have is an error."""

    package = "tt_torch"
    with_effect = _WITH_EFFECT
    without_effect = _WITHOUT_EFFECT
    unremarked = _FOR_RECORDS

    def set_compile_depth(self, compile_depth: CompileDepth) -> None:
        self.compile_depth = compile_depth

    def set_profile_ops(self, profile_ops: bool) -> None:
        self.profile_ops = profile_ops

    def reset_unique_ops(self) -> None:
        """No list of ops is kept."""

    def save_unique_ops(self) -> None:
        """No list of ops is kept; temper passes prints what a model became."""

    def to_dict(self) -> dict[str, Any]:
        return {name: str(value) for name, value in vars(self).items()}

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
        for name in ("enable_trace", "enable_program_cache", "trace_region_size"):
            if config[name] is not None:
                options[name] = config[name]
        if config["compile_depth"] < CompileDepth.EXECUTE_OP_BY_OP:
            options["dry_run"] = True
        return options


class BackendOptions(Mapping[str, Any]):
    """What ``torch.compile(..., options=)`` takes in tt-torch; there is one device here.

    As a mapping it is the compile options of its configuration, so that every backend reads it.
    """

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

    def _options(self) -> dict[str, Any]:
        if len(self.devices) > 1:
            raise UsageError(f"{len(self.devices)} devices: Temper models a single chip")
        return self.compiler_config.to_options()

    def __getitem__(self, name: str) -> Any:
        return self._options()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options())

    def __len__(self) -> int:
        return len(self._options())


def backend(module: Any, example_inputs: Sequence[Any], options: Any = None, **_: Any
            ) -> Callable[..., Any]:  # fmt: skip
    """tt-torch's Dynamo backend, running on the virtual chip.

    What a program does to hand tensors over is no torch op of the model, so modes that watch torch
    ops see none of it; tt-xla's older compile path is the one that showed them.
    """
    from torch.utils._python_dispatch import _disable_current_modes

    from temper.frontdoor.backend import tt
    from temper.options import resolve

    chosen = options_of(options)
    run = tt(module, example_inputs, options=chosen)
    if resolve(chosen)["tt_legacy_compile"]:
        return run

    def unwatched(*inputs: Any) -> Any:
        with _disable_current_modes():
            return run(*inputs)

    return unwatched


def options_of(options: Any) -> dict[str, Any]:
    """Compile options from any of the forms that scripts pass."""
    if options is None:
        return {}
    if isinstance(options, CompilerConfig):
        return options.to_options()
    if isinstance(options, Mapping):
        return dict(options)
    raise UsageError(
        f"options of type {type(options).__name__}",
        allowed=["BackendOptions", "CompilerConfig", "a mapping of option names"],
    )
