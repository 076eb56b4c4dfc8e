"""pybuda.verify.backend: modules, alone or in a row, on the chip against the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from temper.compat.missing import getattr_for
from temper.compat.pybuda_device import Device, TTDevice, as_inputs
from temper.compat.pybuda_run import refuse_training
from temper.compat.pybuda_verify import VerifyConfig

__all__ = ["verify_module", "verify_module_pipeline"]


def verify_module(
    module: Any,
    input_shapes: Sequence[Sequence[int]],
    verify_cfg: VerifyConfig | None = None,
    inputs: Any = None,
    input_params: Sequence[dict[str, Any]] = (),
    **_: Any,
) -> None:
    """Runs the module on both sides; raises when the outputs differ."""
    verify_module_pipeline([module], input_shapes, verify_cfg, inputs, input_params)


def verify_module_pipeline(
    modules: Sequence[Any],
    input_shapes: Sequence[Sequence[int]],
    verify_cfg: VerifyConfig | None = None,
    inputs: Any = None,
    input_params: Sequence[dict[str, Any]] = (),
    *_: Any,
    **__: Any,
) -> None:
    """Each module on what the one before it gave."""
    settings = verify_cfg or VerifyConfig()
    kind = vars(settings)["test_kind"]
    if kind is not None and kind.is_training():
        refuse_training()
    device = TTDevice("tt0", arch=vars(settings)["arch"], module=list(modules))
    Device.all.remove(device)
    for item in inputs or [_random(input_shapes, input_params)]:
        device.run(as_inputs(item), settings)


def _random(shapes: Sequence[Sequence[int]], params: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
    kinds = [dict(item).get("data_format", torch.float32) for item in params]
    kinds += [torch.float32] * (len(shapes) - len(kinds))
    return tuple(
        torch.rand(tuple(shape)).to(kind)
        if kind.is_floating_point
        else torch.randint(0, 100, tuple(shape), dtype=kind)
        for shape, kind in zip(shapes, kinds, strict=True)
    )


__getattr__ = getattr_for(__name__)
