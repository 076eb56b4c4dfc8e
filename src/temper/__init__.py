"""Temper: PyTorch models made fast on a single Tenstorrent chip, real or virtual."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from temper._version import __version__
from temper.process import limit_spinning

limit_spinning()  # takes effect only where temper is imported before torch
if "torch" in sys.modules and hasattr(sys.modules["torch"], "nn"):  # and not half imported
    # torch is there already; when it comes later it calls temper_startup.autoload.
    importlib.import_module("temper.torch_device.autoload").register()

# Public names and the modules they live in; resolved on first use so that light commands such
# as `temper doctor` never import torch.
_PUBLIC = {
    "TemperError": "temper.errors",
    "apply_weight_dtype_overrides": "temper.weights.overrides",
    "bench": "temper.tuning.bench",
    "compile": "temper.frontdoor.compiled",
    "dump_weight_names": "temper.weights.overrides",
    "formats": "",
    "profile": "temper.frontdoor.session",
    "remove_weight_dtype_overrides": "temper.weights.overrides",
    "set_custom_compile_options": "temper.options",
    "signpost": "temper.frontdoor.session",
    "stats": "temper.frontdoor.stats",
    "warmup": "temper.frontdoor.compiled",
}

__all__ = ["__version__", *sorted(_PUBLIC)]  # noqa: PLE0604 - all are strings


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"temper has no attribute {name!r}; it has {', '.join(__all__)}")
    module = _PUBLIC[name]
    if not module:
        return importlib.import_module(f"temper.{name}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
