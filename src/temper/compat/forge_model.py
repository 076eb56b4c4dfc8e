"""Forge's compile, configuration and checks, on the virtual chip."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch

from temper.compat.pybuda_compiled import CompiledPipeline, flat
from temper.compat.pybuda_config import CompilerConfig as PyBudaConfig
from temper.compat.pybuda_device import as_inputs
from temper.compat.pybuda_module import torch_module
from temper.compat.settings import Settings
from temper.errors import UsageError
from temper.formats import pcc as correlation


class MLIRConfig(Settings):
    """Switches of tt-mlir; each has a setter that returns the configuration."""

    package = "forge"
    what = "MLIRConfig"
    with_effect: ClassVar[Mapping[str, Any]] = {
        "enable_consteval": None, "enable_fusing": None,
        "enable_fusing_conv2d_with_multiply_pattern": None,
        "enable_memory_layout_analysis": None, "enable_optimizer": None,
    }  # fmt: skip
    without_effect: ClassVar[Mapping[str, Any]] = {"custom_config": ""}

    def __getattr__(self, name: str) -> Callable[[Any], MLIRConfig]:
        setting = name.removeprefix("set_")
        if setting == name or setting not in {**self.with_effect, **self.without_effect}:
            raise AttributeError(name)

        def chosen(value: Any) -> MLIRConfig:
            setattr(self, setting, value)
            return self

        return chosen

    def to_options(self) -> dict[str, Any]:
        given = vars(self)
        renamed = {
            "enable_consteval": "enable_const_eval",
            "enable_fusing": "enable_fusing",
            "enable_fusing_conv2d_with_multiply_pattern": (
                "experimental_enable_fusing_conv2d_with_multiply_pattern"
            ),
        }
        options: dict[str, Any] = {
            renamed[n]: bool(v) for n, v in given.items() if n in renamed and v is not None
        }
        if given["enable_optimizer"]:
            options["optimization_level"] = 2 if given["enable_memory_layout_analysis"] else 1
        return options


class CompilerConfig(PyBudaConfig):
    """PyBuda's settings as Forge kept them, and tt-mlir's. Without its optimizer the level is 0."""

    package = "forge"
    with_effect: ClassVar[Mapping[str, Any]] = {
        **PyBudaConfig.with_effect, "backend_opt_level": 0, "default_math_fidelity": None,
        "enable_auto_fusing": None, "enable_tvm_cpu_fallback": True, "mlir_config": None,
    }  # fmt: skip

    def to_options(self) -> dict[str, Any]:
        options = super().to_options()
        options.pop("enable_trace")
        if vars(self)["enable_auto_fusing"] is None:
            options.pop("enable_fusing")
        if vars(self)["mlir_config"] is not None:
            options.update(vars(self)["mlir_config"].to_options())
        return options


class CompiledModel(CompiledPipeline):
    """A call gives a list of tensors, as Forge's does."""

    def __call__(self, *inputs: Any, **kwargs: Any) -> list[torch.Tensor]:
        return flat(super().__call__(*inputs, **kwargs))

    forward = __call__

    def save(self, path: str) -> None:
        """The programs as text; Forge would write a flatbuffer."""
        texts = [str(graph.program) for graph in self.compiled.loaded]
        Path(path).write_text("\n".join(texts), encoding="utf-8")


def compile(
    module: Any, sample_inputs: Any = None, module_name: str | None = None, optimizer: Any = None,
    training: bool = False, attach_to: Any = None, compiler_cfg: CompilerConfig | None = None,
    verify_cfg: Any = None, **_: Any,
) -> CompiledModel:  # fmt: skip
    """``forge.compile``: the module for the virtual chip; sample inputs fix the first shape."""
    if training or optimizer is not None:
        raise UsageError("Temper compiles inference; training runs eagerly on the device 'tt'")
    made = CompiledModel(torch_module(module), (compiler_cfg or CompilerConfig()).to_options())
    if sample_inputs is not None:
        args, kwargs = as_inputs(sample_inputs)
        made(*args, **kwargs)
    return made


class AutomaticValueChecker:
    """Correlation and closeness of one output; ValueError where they fall short."""

    def __init__(
        self, pcc: float = 0.99, rtol: float = 1e-05, atol: float = 1e-08,
        dissimilarity_threshold: float = 1e-03,
    ) -> None:  # fmt: skip
        self.pcc = pcc
        self.threshold = dissimilarity_threshold

    def check(self, fw_out: torch.Tensor, co_out: torch.Tensor) -> None:
        left, right = (t.detach().cpu().to(torch.float32).numpy() for t in (fw_out, co_out))
        found = float(correlation(right, left)) if left.size > 1 else 1.0
        if math.isnan(found) or found < self.pcc:
            raise ValueError(f"Data mismatch: PCC {found:.6f}, required {self.pcc:g}")


class VerifyConfig(Settings):
    """What verify compares."""

    package = "forge"
    what = "VerifyConfig"
    silent = True
    with_effect: ClassVar[Mapping[str, Any]] = {
        "enabled": True, "verify_dtype": True, "verify_shape": True, "verify_size": True,
        "verify_values": True, "value_checker": AutomaticValueChecker(),
    }  # fmt: skip
    without_effect: ClassVar[Mapping[str, Any]] = {
        "dump_tensors": False, "dump_tensors_path": "", "graph_name": "graph",
        "run_golden": False, "stages_for_intermediate_verification": set(),
        "verify_each_forge_pass": False, "verify_emitc_correctness": False,
        "verify_forge_codegen_vs_framework": False, "verify_all": False, "verify_last": True,
    }  # fmt: skip


def verify(
    inputs: Sequence[torch.Tensor], framework_model: Any, compiled_model: CompiledModel,
    verify_cfg: VerifyConfig | None = None, **_: Any,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:  # fmt: skip
    """Both models on the inputs; raises where the outputs differ, else gives them."""
    if not len(inputs):
        raise ValueError("Input tensors must be provided")
    asked = vars(verify_cfg or VerifyConfig())
    with torch.no_grad():
        expected = flat(torch_module(framework_model)(*inputs))
    found = [value.cpu() for value in compiled_model(*inputs)]
    if not asked["enabled"]:
        return expected, found
    if asked["verify_size"] and len(expected) != len(found):
        raise ValueError(f"{len(found)} outputs, but the framework gives {len(expected)}")
    for theirs, ours in zip(expected, found, strict=False):
        if asked["verify_dtype"] and theirs.dtype != ours.dtype:
            raise TypeError(f"Dtype mismatch: {ours.dtype}, the framework gives {theirs.dtype}")
        if asked["verify_shape"] and theirs.shape != ours.shape:
            raise ValueError(f"Shape mismatch: {ours.shape}, the framework gives {theirs.shape}")
        if asked["verify_values"]:
            asked["value_checker"].check(theirs, ours)
    return expected, found
