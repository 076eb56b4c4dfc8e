"""PyBuda's CompilerConfig, mapped to Temper's compile options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from temper.compat.missing import note
from temper.compat.pybuda_formats import (
    CompileDepth,
    DataFormat,
    DeviceMode,
    MathFidelity,
    PerfTraceLevel,
    activation,
    as_member,
    weight,
)
from temper.compat.settings import Settings
from temper.errors import UsageError

# Real settings of PyBuda's class and their defaults that do not change our programs.
_WITHOUT_EFFECT: dict[str, Any] = {
    "amp_properties": [], "backend_cluster_descriptor_path": "",
    "backend_device_descriptor_path": "", "backend_output_dir": "tt_build/test_out",
    "backend_runtime_args": "", "backend_runtime_params_path": "", "balancer_op_overrides": {},
    "balancer_policy": "default", "buffering_nops_to_insert": {},
    "chip_placement_policy": "MMIO_LAST", "compile_depth": CompileDepth.FULL,
    "compile_tvm_to_python": True, "conv_multi_op_fracture_factor_override": {},
    "convert_framework_params_to_tvm": True, "cpu_fallback_ops": {"embedding"},
    "default_dram_parameters": None, "device_mode": DeviceMode.CompileAndRun,
    "dram_placement_algorithm": "ROUND_ROBIN", "enable_auto_transposing_placement": False,
    "enable_broadcast_splitting": False, "enable_conv_prestride": True,
    "enable_device_tilize": False, "enable_enumerate_u_kt": True,
    "enable_forked_dram_inputs": False, "enable_link_past_cache_ios": False,
    "enable_optimization_passes": False, "enable_recompute": False,
    "enable_single_buffer_fallback": False, "enable_stable_softmax": True,
    "enable_t_streaming": True, "enable_tm_cpu_fallback": False, "enable_training": False,
    "enable_tvm_dropout": False, "enable_tvm_jax_freeze_large_model": True,
    "enable_tvm_unsupported_ops": False, "enable_xla_jax_convert": False, "fracture_groups": [],
    "framework_model_output_names": [], "graph_solver_self_cut_type": "FastCut",
    "harvesting_mask": 0, "input_queues_on_host": True, "insert_queues": [],
    "loopback_outputs": {}, "manual_dram_queue_placement": {}, "manual_t_streaming": False,
    "match_subgraph_patterns": None, "max_pool_add_sub_surround": False,
    "max_pool_add_sub_surround_value": 1.0, "op_intermediates_to_save": [],
    "op_names_dont_fuse": [], "op_names_manual_fuse": [], "op_names_to_chip_break": [],
    "op_names_to_epoch_break": [], "output_queues_on_host": True, "paddings": {},
    "performance_trace": PerfTraceLevel.NONE, "placer_op_overrides": [],
    "retain_tvm_python_files": False, "scheduler_constraints": [],
    "scheduler_policy": "ModuleInputsBFS", "store_backend_db_to_yaml": False,
    "tm_cpu_fallback_max_depth": 10, "tti_dump_format": "default", "tvm_constnat_prop_mask": set(),
    "tvm_graph_load_path": "", "tvm_graph_store_path": "", "tvm_module_to_num_patterns": {},
    "use_interactive_placer": True, "verify_pybuda_codegen_vs_framework": False,
    "verify_tvm_compile": False, "varify_tvm_compile": False,
}  # fmt: skip
_WITH_EFFECT: dict[str, Any] = {
    "amp_level": None, "backend_opt_level": 4, "compile_subgraphs": False,
    "default_accumulate_df": None, "default_df_override": None,
    "default_math_fidelity": MathFidelity.HiFi3, "enable_auto_fusing": True,
    "enable_consteval": True, "enable_tvm_constant_prop": None, "enable_tvm_cpu_fallback": True,
}  # fmt: skip
# What enable_amp_light does to matmuls: the weights' format and the fidelity.
_AMP_LIGHT = {
    1: (DataFormat.Bfp8_b, MathFidelity.HiFi2),
    2: (DataFormat.Bfp4_b, MathFidelity.HiFi2),
    3: (DataFormat.Bfp4_b, MathFidelity.LoFi),
}


class CompilerConfig(Settings):
    """Settings by PyBuda's names; one that PyBuda does not have is an error."""

    package = "pybuda"
    with_effect: ClassVar[Mapping[str, Any]] = _WITH_EFFECT
    without_effect: ClassVar[Mapping[str, Any]] = _WITHOUT_EFFECT

    def __init__(self, **settings: Any) -> None:
        # The format of matmul weights that mixed precision asks for; no setting of its own.
        object.__setattr__(self, "_weight_format", None)
        super().__init__(**settings)
        if os.environ.get("PYBUDA_DEFAULT_DF") and "default_df_override" not in settings:
            self.default_df_override = DataFormat.from_json(os.environ["PYBUDA_DEFAULT_DF"])
        if os.environ.get("PYBUDA_AMP_LIGHT"):
            self.enable_amp_light(int(os.environ["PYBUDA_AMP_LIGHT"]))

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
        weights = config["_weight_format"]
        if config["amp_level"]:
            # Matmuls in Bfp8, the rest in Float16_b unless the script names a format.
            weights = weights or DataFormat.Bfp8_b
            options["activation_dtype"] = "bfloat16"
        if weights is not None and weight(weights):
            options["experimental_weight_dtype"] = weight(weights)
        if config["default_df_override"] is not None:
            options["activation_dtype"] = activation(config["default_df_override"])
        if config["default_accumulate_df"] is not None:
            accumulate = as_member(DataFormat, config["default_accumulate_df"])
            options["fp32_dest_acc_en"] = accumulate is DataFormat.Float32
        return options

    def enable_amp_light(self, level: int = 1) -> None:
        """Matmul weights of 8 or 4 bits, and a lower fidelity."""
        if level == 0:
            return
        if level not in _AMP_LIGHT:
            raise UsageError(f"no amp light level {level}", allowed=["0", *map(str, _AMP_LIGHT)])
        self.set_weight_format(_AMP_LIGHT[level][0])
        self.default_math_fidelity = _AMP_LIGHT[level][1]

    def set_weight_format(self, given: Any) -> None:
        object.__setattr__(self, "_weight_format", as_member(DataFormat, given))

    def place_on_new_epoch(self, op_names: Any) -> None:
        by_hand("place_on_new_epoch")

    def place_on_new_chip(self, op_names: Any) -> None:
        by_hand("place_on_new_chip")

    def place_queue_to_chip_dram(self, dram_queue: str, **_: Any) -> None:
        by_hand("place_queue_to_chip_dram")

    def dont_fuse(self, op_names: Any) -> None:
        by_hand("dont_fuse")

    def manual_fuse(self, op_names: Any) -> None:
        by_hand("manual_fuse")

    def balancer_op_override(self, op_name: str, attribute: str, value: Any) -> None:
        by_hand("balancer_op_override")

    def save_intermediates(self) -> bool:
        return False


def by_hand(name: str) -> None:
    """PyBuda's op names are those of its own graph, so what names one can have no effect here."""
    note("by hand", f"{name} and other orders for single ops by PyBuda's op names have no effect: "
         "Temper sizes and places ops itself")  # fmt: skip


_global = CompilerConfig()
# Arguments of set_configuration_options that the configuration has under another name.
_RENAMED = {"accumulate_df": "default_accumulate_df", "math_fidelity": "default_math_fidelity"}
_ONLY_ARGUMENTS = ("device_config", "harvested_rows", "place_on_one_row")


def global_compiler_config() -> CompilerConfig:
    """The configuration of compiles that name none."""
    return _global


def set_configuration_options(**settings: Any) -> None:
    """Changes the global configuration."""
    for name, value in settings.items():
        if value is None:
            continue
        if name in _ONLY_ARGUMENTS:
            note(f"pybuda.{name}", f"{name} has no effect on the virtual chip")
        else:
            setattr(_global, _RENAMED.get(name, name), value)


def reset_configuration() -> None:
    """Forget everything that a script has configured."""
    global _global
    _global = CompilerConfig()
