"""pybuda.verify: a module on the chip against the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from temper.compat.missing import getattr_for
from temper.compat.pybuda_config import global_compiler_config
from temper.compat.pybuda_run import CompiledPipeline, TTDevice, VerifyConfig

from . import config

__all__ = ["VerifyConfig", "config", "verify_module"]


def verify_module(
    module: Any,
    input_shapes: Sequence[Sequence[int]],
    verify_cfg: VerifyConfig | None = None,
    inputs: Any = None,
    **_: Any,
) -> None:
    """Runs the module on both sides; raises when the outputs differ."""
    settings = verify_cfg or VerifyConfig()
    device = TTDevice("tt0", arch=settings.arch)
    made = CompiledPipeline(module, device, global_compiler_config(), settings)
    for given in inputs or [tuple(torch.rand(*shape) for shape in input_shapes)]:
        made(*given)


__getattr__ = getattr_for(__name__)
