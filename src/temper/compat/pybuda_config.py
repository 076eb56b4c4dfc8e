"""PyBuda's enumerations and CompilerConfig, mapped to Temper's compile options."""

from __future__ import annotations

import os
from enum import Enum
from typing import Any

from temper.compat.settings import Settings
from temper.errors import UsageError


class BackendType(Enum):
    """PyBuda's back ends; whatever is asked for runs on the virtual chip."""

    Golden = 0
    Model = 1
    Silicon = 2
    NoBackend = 3
    Versim = 4
    Emulation = 5


class BackendDevice(Enum):
    Grayskull = "grayskull"
    Wormhole_B0 = "wormhole_b0"
    Blackhole = "blackhole"
    Invalid = "invalid"


class MathFidelity(Enum):
    LoFi = "LoFi"
    HiFi2 = "HiFi2"
    HiFi3 = "HiFi3"
    HiFi4 = "HiFi4"
    Invalid = ""


class DataFormat(Enum):
    """PyBuda's formats; the value is Temper's name, empty where the virtual chip has none."""

    Float32 = "float32"
    Float16_b = "bfloat16"
    Bfp8_b = "bfloat8_b"
    Bfp4_b = "bfloat4_b"
    Bfp2_b = "bfloat2_b"
    Int32 = "int32"
    UInt16 = "uint16"
    RawUInt32 = "uint32"
    RawUInt8 = "uint8"
    # Formats with a five-bit exponent, which no compiler for the newer chips offers.
    Float16 = "float16"
    Bfp8 = "bfp8_a"
    Bfp4 = "bfp4_a"
    Bfp2 = "bfp2_a"
    Lf8 = "lf8"
    Int8 = "int8"
    RawUInt16 = "raw_uint16"


# The board that stands for an architecture when the script or the command line names none.
BOARDS = {
    BackendDevice.Grayskull: "e75",
    BackendDevice.Wormhole_B0: "n150",
    BackendDevice.Blackhole: "p150",
}

# Real settings of PyBuda's class and their defaults that do not change our programs.
_WITHOUT_EFFECT: dict[str, Any] = {
    "amp_level": None, "balancer_policy": "default", "chip_placement_policy": "MMIO_LAST",
    "compile_subgraphs": False, "compile_tvm_to_python": True,
    "convert_framework_params_to_tvm": True, "cpu_fallback_ops": {"embedding"},
    "default_dram_parameters": None, "device_mode": "CompileAndRun",
    "enable_auto_transposing_placement": True, "enable_broadcast_splitting": False,
    "enable_conv_prestride": True, "enable_recompute": False, "enable_stable_softmax": True,
    "enable_t_streaming": True, "enable_tm_cpu_fallback": False, "enable_training": False,
    "enable_xla_jax_convert": False, "graph_solver_self_cut_type": "FastCut",
    "input_queues_on_host": True, "loopback_outputs": {}, "manual_t_streaming": False,
    "output_queues_on_host": True, "performance_trace": None, "place_on_new_epoch": [],
    "retain_tvm_python_files": False, "scheduler_policy": "ModuleInputsBFS",
    "tti_dump_format": "default", "tvm_graph_load_path": "", "tvm_graph_store_path": "",
    "verify_tvm_compile": False, "varify_tvm_compile": False,
}  # fmt: skip
_WITH_EFFECT: dict[str, Any] = {
    "backend_opt_level": 4, "default_accumulate_df": None, "default_df_override": None,
    "default_math_fidelity": MathFidelity.HiFi3, "enable_auto_fusing": True,
    "enable_consteval": True, "enable_tvm_constant_prop": None, "enable_tvm_cpu_fallback": True,
}  # fmt: skip


class CompilerConfig(Settings):
    """Settings by PyBuda's names; one that PyBuda does not have is an error."""

    package = "pybuda"
    with_effect = _WITH_EFFECT
    without_effect = _WITHOUT_EFFECT

    def to_options(self) -> dict[str, Any]:
        """Temper's options.

        PyBuda always optimises and its netlist runs without the host between ops, so the level
        follows backend_opt_level and the program is traced.
        """
        config = vars(self)
        fusing = bool(config["enable_auto_fusing"])
        fusing = fusing and not os.environ.get("PYBUDA_DISABLE_OP_FUSING")
        folding = config["enable_tvm_constant_prop"]
        options: dict[str, Any] = {
            "optimization_level": min(2, int(config["backend_opt_level"])),
            "enable_trace": True,
            "enable_fusing": fusing,
            "enable_const_eval": bool(config["enable_consteval"] if folding is None else folding),
            "fallback": bool(config["enable_tvm_cpu_fallback"]),
        }
        fidelity = as_member(MathFidelity, config["default_math_fidelity"])
        if fidelity is not None and fidelity is not MathFidelity.Invalid:
            options["math_fidelity"] = fidelity.value
        if config["default_df_override"] is not None:
            options["activation_dtype"] = activation(config["default_df_override"])
        if config["default_accumulate_df"] is not None:
            accumulate = as_member(DataFormat, config["default_accumulate_df"])
            options["fp32_dest_acc_en"] = accumulate is DataFormat.Float32
        return options


def activation(given: Any) -> str:
    """The option value for an activation format, or an error that names those there are."""
    kind = as_member(DataFormat, given)
    allowed = (DataFormat.Float32, DataFormat.Float16_b, DataFormat.Bfp8_b)
    if kind not in allowed:
        raise UsageError(
            f"{given} is no activation format of the virtual chip",
            allowed=[f"DataFormat.{item.name}" for item in allowed],
        )
    return str(kind.value)


def as_member(kind: type[Enum], given: Any) -> Any:
    """An enumeration member given as such or by name."""
    if given is None or isinstance(given, kind):
        return given
    try:
        return kind[str(given)]
    except KeyError:
        raise UsageError(
            f"no {kind.__name__} {given!r}", allowed=[item.name for item in kind]
        ) from None


_global = CompilerConfig()


def global_compiler_config() -> CompilerConfig:
    """The configuration of compiles that name none."""
    return _global


def set_configuration_options(**settings: Any) -> None:
    """Changes the global configuration."""
    for name, value in settings.items():
        if value is not None:
            setattr(_global, name, value)


def reset_configuration() -> None:
    global _global
    _global = CompilerConfig()
