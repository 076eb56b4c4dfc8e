"""tt-torch's verify_module: a module on the chip against the same module on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

import temper
from temper.compat.tt_torch_config import options_of
from temper.errors import UsageError
from temper.formats import pcc


def calculate_pcc(tensor: torch.Tensor, golden: torch.Tensor) -> float:
    """Pearson correlation over all elements."""
    return float(pcc(_plain(tensor).numpy(), _plain(golden).numpy()))


def calculate_atol(tensor: torch.Tensor, golden: torch.Tensor) -> float:
    """Largest absolute difference; infinite where only one side is not a number."""
    ours, theirs = _plain(tensor), _plain(golden)
    if not torch.equal(torch.isnan(ours), torch.isnan(theirs)):
        return math.inf
    if not ours.numel():
        return 0.0
    return float(torch.nan_to_num(ours - theirs).abs().max())


def verify_module(
    mod: Any,
    inputs: Sequence[torch.Tensor] | None = None,
    input_shapes: Sequence[Sequence[int]] | None = None,
    input_data_types: Sequence[torch.dtype] | None = None,
    required_pcc: float = 0.99,
    required_atol: float = 1e-2,
    input_range: tuple[float, float] = (-0.5, 0.5),
    input_range_int: tuple[int, int] = (0, 1000),
    compiler_config: Any = None,
    do_assert: bool = True,
    **_: Any,
) -> None:
    """Runs both and compares every output; AssertionError when one is too far off.

    Older scripts give shapes where newer ones give inputs.
    """

    if not isinstance(mod, torch.nn.Module):
        raise UsageError(
            f"verify_module takes a torch.nn.Module, not {mod!r}",
            needs="ONNX models are not read by Temper",
        )
    if inputs and all(isinstance(item, (list, tuple, torch.Size)) for item in inputs):
        input_shapes = [tuple(item) for item in inputs]
        inputs = None
    if inputs is None:
        if input_shapes is None:
            raise UsageError("verify_module needs inputs or input_shapes")
        kinds = input_data_types or [torch.float32] * len(input_shapes)
        inputs = [
            _random(shape, kind, input_range, input_range_int)
            for shape, kind in zip(input_shapes, kinds, strict=True)
        ]
    was_training = mod.training
    mod.eval()
    options = options_of(compiler_config)
    # A verdict on accuracy sums as the chip does, not by the host's faster rule.
    compiled = temper.compile(mod, **{"exact_accumulation": True, **options})
    with torch.no_grad():
        found, golden = _flat(compiled(*inputs)), _flat(mod(*inputs))
    mod.train(was_training)
    if options.get("dry_run"):
        print("Verify: compiled only, as compile_depth asks; nothing was computed to compare")
        return
    for number, (ours, theirs) in enumerate(zip(found, golden, strict=True)):
        atol = calculate_atol(ours, theirs)
        correlation = calculate_pcc(ours, theirs) if theirs.numel() > 1 else 1.0
        told = (
            f"output {number}: ATOL {atol:.3g} (required {required_atol:g}), "
            f"PCC {correlation:.6f} (required {required_pcc:g})"
        )
        print(f"Verify {told}")
        if do_assert and (atol > required_atol or correlation < required_pcc):
            raise AssertionError(f"verification failed: {told}")


def verify_against_golden(
    golden_tensors: Sequence[torch.Tensor],
    calculated_tensors: Sequence[torch.Tensor],
    assert_pcc: bool,
    assert_atol: bool,
    required_pcc: float = 0.99,
    required_atol: float | None = None,
    relative_atol: float | None = None,
) -> tuple[list[float], list[float], bool, bool, list[float]]:
    """PCC and largest difference of each output, whether they pass, and the limits."""
    if len(golden_tensors) != len(calculated_tensors):
        raise AssertionError(
            f"{len(calculated_tensors)} outputs, but {len(golden_tensors)} golden ones"
        )
    pccs, atols, limits = [], [], []
    for golden, found in zip(golden_tensors, calculated_tensors, strict=True):
        pccs.append(calculate_pcc(found, golden) if golden.numel() > 1 else 1.0)
        atols.append(calculate_atol(found, golden))
        largest = float(_plain(golden).abs().max()) if golden.numel() else 0.0
        limits.append(
            relative_atol * largest if relative_atol is not None else required_atol or math.inf
        )
    passed_pcc = all(value >= required_pcc for value in pccs)
    passed_atol = all(value <= limit for value, limit in zip(atols, limits, strict=True))
    told = f"PCC {min(pccs, default=1.0):.6f} (required {required_pcc:g}), ATOL {atols}"
    if (assert_pcc and not passed_pcc) or (assert_atol and not passed_atol):
        raise AssertionError(f"verification failed: {told}")
    return pccs, atols, passed_pcc, passed_atol, limits


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().to(torch.float32)


def _flat(value: Any) -> list[torch.Tensor]:
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _random(
    shape: Sequence[int], kind: torch.dtype, floats: tuple[float, float], ints: tuple[int, int]
) -> torch.Tensor:
    if kind == torch.bool:
        return torch.randint(0, 2, tuple(shape), dtype=kind)
    if kind.is_floating_point:
        low, high = floats
        return ((high - low) * torch.rand(tuple(shape)) + low).to(kind)
    return torch.randint(ints[0], ints[1], tuple(shape), dtype=kind)
