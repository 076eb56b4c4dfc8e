"""Stand-in modules that only forward names: each a row of one table instead of a file.

A value names where the attribute lives, ``package.module:attribute``; ``""`` is a module below.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def _names(place: str, *names: str, **renamed: str) -> dict[str, str]:
    """Names that live in one module of temper.compat, some of them under another name there."""
    where = f"temper.compat.{place}"
    return {
        **{name: f"{where}:{name}" for name in names},
        **{name: f"{where}:{own}" for name, own in renamed.items()},
    }


_BUDA_FORMATS = _names("pybuda_formats", "DataFormat", "MathFidelity")
_BRIDGE = _names("tt_torch_parts", "GraphInputMatcher", "extract_compiled_graph")
FORWARDS: dict[str, dict[str, str]] = {
    "forge._C": {**_BUDA_FORMATS, "runtime": ""},
    "forge._C.runtime": {"experimental": ""},
    "forge.config": {**_names("forge_model", "CompilerConfig", "MLIRConfig"), **_BUDA_FORMATS},
    "forge.verify": {"config": "", "value_checkers": "", "verify": ""},
    "forge.verify.config": _names("forge_model", "VerifyConfig"),
    "forge.verify.value_checkers": _names("forge_model", "AutomaticValueChecker"),
    "forge.verify.verify": _names("forge_model", "verify"),
    "pybuda._C.backend_api": _names("pybuda_formats", "BackendDevice", "BackendType", "DeviceMode"),
    "pybuda.transformers": {"pipeline": ""},
    "pybuda.transformers.pipeline": _names("pybuda_pipeline", "pipeline"),
    "torch_xla._XLAC": _names("xla_parts", "_xla_get_default_device", "_xla_metrics_report",
                              "_get_xla_sharding_spec", "_xla_get_replication_devices_count"),
    "torch_xla._dynamo": {"dynamo_bridge": ""},
    "torch_xla._dynamo.dynamo_bridge": _BRIDGE,
    "torch_xla.core": {"dynamo_bridge": "", "xla_model": ""},
    "torch_xla.core.dynamo_bridge": _BRIDGE,
    "torch_xla.debug": {"metrics": "", "profiler": ""},
    "torch_xla.distributed": {"parallel_loader": "", "spmd": "", "xla_multiprocessing": ""},
    "torch_xla.runtime.runtime": {
        name: f"torch_xla.runtime:{name}"
        for name in ("addressable_device_count", "addressable_runtime_device_count", "clear_cache",
                     "clear_computation_cache", "device_type", "global_device_count",
                     "global_ordinal", "global_runtime_device_count", "initialize_cache", "is_spmd",
                     "local_ordinal", "process_count", "process_index", "set_device_type",
                     "use_spmd", "world_size")
    },
    "tt_torch.backend": {"backend": "", "passes": ""},
    "tt_torch.backend.backend": {
        **_names("tt_torch_config", tt_backend="backend", xla_backend="backend"),
        **_names("tt_torch_parts", "aot_backend", "bw_compiler", "fw_compiler"),
    },
    "tt_torch.backend.passes": {
        **_names("tt_torch_passes", "bypass_assert_tensor_metadata",
                 "bypass_dtype_promotion_and_redundant_cast", "bypass_redundant_getitem",
                 "count_inplace_mutations", "erase_repeat_kv", "handle_composite_ops",
                 "insert_argument_type_markers", "run_fusion_passes", "run_shape_prop",
                 # What their tests look at beside them.
                 _SDPA_HEAD_AXIS_FROM_END="HEADS", _fx_node_shape="fx_node_shape",
                 _normalize_dim="normalize_dim", _sdpa_operand="sdpa_operand",
                 _replace_multi_output_op="replace_multi_output_op"),
        **_names("tt_torch_parts", "run_selected_fusion_passes"),
    },
    "tt_torch.codegen": _names("tt_torch_export", "codegen_cpp", "codegen_py"),
    "tt_torch.composite_ops": _names(
        "tt_torch_ops", "composite_argmax", "composite_gelu", "composite_group_norm",
        "composite_layer_norm", "composite_rms_norm", "composite_scaled_dot_product_attention",
        "composite_topk", "composite_topk_indices", "composite_topk_values"),
    "tt_torch.custom_ops": {
        **_names("tt_torch_ops", "fill_cache", "mark_argument_attributes", "paged_fill_cache",
                 "paged_scaled_dot_product_attention_decode", "paged_update_cache",
                 "scaled_dot_product_attention", "scaled_dot_product_attention_decode",
                 "sharding_constraint", "sparse_matmul", "update_cache"),
        **_names("tt_torch_latent", "TOPK_LARGE_INDICES_SENTINEL",
                 "chunked_scaled_dot_product_attention", "dsa_kernels_available",
                 "flash_mla_prefill", "indexer_score", "indexer_score_dsa",
                 "paged_flash_mla_decode", "sparse_sdpa", "topk_large_indices",
                 "topk_large_indices_mask_invalid_slots"),
    },
    "tt_torch.custom_moe_ops": _names("tt_torch_ops", "sparse_matmul"),
    "tt_torch.dynamo": {"backend": "", "sharding_utils": ""},
    "tt_torch.dynamo.backend": _names("tt_torch_config", "BackendOptions", "backend"),
    "tt_torch.dynamo.sharding_utils": _names(
        "tt_torch_parts", "create_device_mesh", "mark_sharding", "setup_xla_spmd_environment"),
    "tt_torch.serialization": _names(
        "tt_torch_export", parse_compiled_artifacts_from_cache="no_artifacts",
        parse_compiled_artifacts_from_cache_to_disk="no_artifacts"),
    "tt_torch.sparse_mlp": _names("tt_torch_parts", "A2aSparseMLP", "SparseMLP",
                                  "enable_sparse_mlp"),
    "tt_torch.tools.crashsafe_utils": _names("tt_torch_parts", "crashsafe_suffix"),
    "tt_torch.tools.profile": _names("tt_torch_parts", "profile"),
    "tt_torch.tools.profile_util": _names("tt_torch_profile", "Profiler"),
    "tt_torch.tools.utils": {
        **_names("tt_torch_config", "CompileDepth", "CompilerConfig", "OpByOpBackend"),
        **_names("tt_torch_testing", "ModelMetadata", "OpCompilationStatus", "RuntimeIntermediate",
                 "onnx_output_to_torch", "prepare_inference_session", "torch_input_to_onnx",
                 "with_torch_dynamo_cleanup"),
        **_names("tt_torch_verify", "calculate_atol", "calculate_pcc"),
    },
    "tt_torch.tools.verify": _names("tt_torch_verify", "verify_against_golden", "verify_module",
                                    verify_torch_module="verify_module",
                                    verify_torch_module_async="verify_module"),
    "tt_torch.torch_overrides": _names("tt_torch_parts", "torch_function_override"),
    "tt_torch.weight_dtype": _names(
        "tt_torch_weights", "WeightDtypeParametrization", "apply_weight_dtype_overrides",
        "dump_weight_names", "remove_weight_dtype_overrides"),
    "ttxla_tools.serialization": _names(
        "tt_torch_export", parse_executable="no_artifacts",
        parse_compiled_artifacts_from_cache_to_disk="no_artifacts"),
}  # fmt: skip
# What importing a module of the table does besides.
_ON_IMPORT = dict.fromkeys(
    ("tt_torch.custom_ops", "tt_torch.custom_moe_ops"), "temper.compat.tt_torch_ops"
)


class ForwardLoader(Loader):
    """Makes a module of the table; its attributes are looked up when they are asked for."""

    def __init__(self, missing: Callable[[str, int], Callable[[str], Any]]) -> None:
        self._missing = missing

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        table = FORWARDS[name]
        other = self._missing(name, 2)

        def find(attribute: str) -> Any:
            place = table.get(attribute)
            if place is None:
                return other(attribute)
            if place:
                where, _, own = place.partition(":")
                found: Any = importlib.import_module(where)
                for part in own.split("."):
                    found = found[part] if isinstance(found, dict) else getattr(found, part)
            else:
                found = importlib.import_module(f"{name}.{attribute}")
            setattr(sys.modules[name], attribute, found)
            return found

        module.__doc__ = f"{name}, as scripts written for it use it."
        module.__dict__["__all__"] = sorted(table)
        module.__dict__["__getattr__"] = find
        if name in _ON_IMPORT:
            importlib.import_module(_ON_IMPORT[name])
