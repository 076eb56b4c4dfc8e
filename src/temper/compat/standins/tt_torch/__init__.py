"""tt_torch as tt-xla and tt-torch scripts use it; the backend "tt" is Temper's."""

from __future__ import annotations

from temper.compat.dynamo_names import register_if_late
from temper.compat.missing import getattr_for
from temper.compat.tt_torch_config import BackendOptions, CompilerConfig
from temper.compat.tt_torch_export import (
    codegen_cpp,
    codegen_py,
)
from temper.compat.tt_torch_export import no_artifacts as parse_compiled_artifacts_from_cache
from temper.compat.tt_torch_weights import (
    apply_weight_dtype_overrides,
    dump_weight_names,
    remove_weight_dtype_overrides,
)

from . import onnx_compile, sharding, tools
from .sharding import sharding_constraint_hook
from .tools import mark_module_user_inputs

__all__ = [
    "BackendOptions", "CompilerConfig", "apply_weight_dtype_overrides", "codegen_cpp",
    "codegen_py", "dump_weight_names", "mark_module_user_inputs",
    "onnx_compile", "parse_compiled_artifacts_from_cache",
    "parse_compiled_artifacts_from_cache_to_disk", "remove_weight_dtype_overrides",
    "save_system_descriptor_to_disk", "sharding", "sharding_constraint_hook", "tools",
]  # fmt: skip
parse_compiled_artifacts_from_cache_to_disk = parse_compiled_artifacts_from_cache
save_system_descriptor_to_disk = parse_compiled_artifacts_from_cache
register_if_late()
__getattr__ = getattr_for(__name__)
