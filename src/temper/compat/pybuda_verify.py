"""PyBuda's VerifyConfig and its check of the chip's outputs against the host's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from temper.compat.pybuda_formats import BackendDevice, BackendType, DataFormat, DeviceMode
from temper.compat.settings import Settings
from temper.errors import TemperError
from temper.formats import pcc


class VerifyConfig(Settings):
    """Compare with the host: ``pcc`` 0.99 when unset, and tolerances where they are given."""

    package = "pybuda"
    what = "VerifyConfig"
    with_effect: ClassVar[Mapping[str, Any]] = {
        "arch": BackendDevice.Grayskull, "atol": None, "enabled": True,
        "fp32_fallback": DataFormat.Float16_b, "pcc": None, "rtol": None,
    }  # fmt: skip
    # Which of PyBuda's own stages to check, and how it trains; here there is one check.
    without_effect: ClassVar[Mapping[str, Any]] = {
        "accumulation_steps": 1, "checkpoint_interval": 1, "chip_ids": None,
        "devmode": DeviceMode.CompileAndRun, "devtype": BackendType.Golden,
        "dump_tensors_path": "", "enable_input_gradient_checking": True,
        "enable_parameter_gradient_checking": True, "epoch_breaks": [], "epochs": 1,
        "golden_compare_callback": None, "golden_ignore_df_precision": True,
        "graph_name": "graph", "intermediates": True, "microbatch_count": 1, "num_chips": None,
        "optimizer": None, "relative_atol": 0.1, "run_golden": False, "run_net2pipe": False,
        "scale_loss": 50.0, "scheduler": None, "sequential": True, "skip_shutdown": False,
        "steps": 1, "test_kind": None, "tti_path": None, "verify_all": False,
        "verify_each_buda_pass": False, "verify_last": True,
        "verify_pipeline_result_vs_framework": False, "verify_post_autograd_passes": False,
        "verify_post_placer": False, "verify_pybuda_codegen_vs_framework": False,
        "verify_tvm_compile": False, "waive_gradient_errors": set(),
    }  # fmt: skip
    silent = True

    @classmethod
    def disabled(cls) -> VerifyConfig:
        return cls(enabled=False)


def verify(found: Sequence[Any], golden: Sequence[Any], settings: VerifyConfig) -> None:
    """PyBuda's check: correlation, and tolerances where they are given."""
    given = vars(settings)
    required = 0.99 if given["pcc"] is None else given["pcc"]
    for number, (ours, theirs) in enumerate(zip(found, golden, strict=True)):
        left, right = (t.detach().cpu().to(torch.float32) for t in (ours, theirs))
        correlation = float(pcc(left.numpy(), right.numpy())) if right.numel() > 1 else 1.0
        rtol, atol = (_tolerance(given[name], theirs.dtype) for name in ("rtol", "atol"))
        close = rtol is None and atol is None
        close = close or torch.allclose(left, right, rtol=rtol or 0.0, atol=atol or 0.0)
        if correlation < required or not close:
            raise TemperError(
                f"output {number} differs from the host: PCC {correlation:.6f}, "
                f"required {required:g}",
                try_=["a higher default_math_fidelity", "a wider data format"],
            )


def _tolerance(given: Any, kind: torch.dtype) -> float | None:
    """One for all, or one a type."""
    value = given.get(kind) if isinstance(given, dict) else given
    return None if value is None else float(value)
