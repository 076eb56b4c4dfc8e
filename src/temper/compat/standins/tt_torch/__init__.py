"""tt_torch as tt-xla and tt-torch scripts use it; the backend "tt" is Temper's."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.tt_torch_config import BackendOptions, CompilerConfig
from temper.frontend.weight_overrides import (
    apply_weight_dtype_overrides,
    dump_weight_names,
    remove_weight_dtype_overrides,
)

from . import dynamo, tools
from .dynamo.backend import backend

__all__ = [
    "BackendOptions", "CompilerConfig", "apply_weight_dtype_overrides", "backend",
    "dump_weight_names", "dynamo", "remove_weight_dtype_overrides", "tools",
]  # fmt: skip
__getattr__ = getattr_for(__name__)
