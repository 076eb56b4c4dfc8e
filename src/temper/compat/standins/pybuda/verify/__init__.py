"""pybuda.verify: a module on the chip against the host."""

from __future__ import annotations

from temper.compat.missing import getattr_for
from temper.compat.pybuda_verify import VerifyConfig

from . import backend, config
from .backend import verify_module, verify_module_pipeline
from .config import TestKind

__all__ = [
    "TestKind", "VerifyConfig", "backend", "config", "verify_module", "verify_module_pipeline",
]  # fmt: skip
__getattr__ = getattr_for(__name__)
