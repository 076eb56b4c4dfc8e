"""How an op computes: fidelity, accumulator and approximation, by level.

Level 0 is exact and slow: HiFi4 with float32 accumulation for every op. From level 1 on the op
gets what ttnn chooses for itself (FACTS 2.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temper.program.ops import KINDS
from temper.program.tensor import BLOCK_FORMATS, TensorSpec

# A bfloat16 sum this long loses too much; the compiler then accumulates in float32 (FACTS 6.2).
_LARGE_K = 50_000


def default_compute(
    kind: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    arch: str,
    level: int,
    *,
    k: int = 0,
    norm: str = "layer",
) -> dict[str, Any]:
    """``fidelity``, ``fp32_acc``, ``packer_l1_acc`` and ``approx`` of an op of that kind.

    ``k`` is the length of a matmul's sums when the caller knows it, ``norm`` the variant of a
    LayerNorm. A kind that has no compute attributes gives an empty mapping.
    """
    if "fidelity" not in KINDS[kind].attrs:
        return {}
    if level == 0:
        return _config("HiFi4", fp32_acc=True)
    if kind == "Matmul":
        return _matmul(inputs, outputs, arch, k)
    if kind in ("Conv2d", "ConvTranspose2d"):
        both_fp32 = all(spec.format == "float32" for spec in inputs[:2])
        return _config("HiFi4", fp32_acc=both_fp32, approx=True)
    if kind == "Sdpa":
        return _config("HiFi2", approx=True)
    if kind == "Softmax":
        return _config("HiFi4", approx=True)
    if kind == "Reduce":
        return _config(_exact(arch))
    # ttnn 0.81 sums a layer norm in float32 by default but not an rms norm (seen in its buffers).
    return _config("HiFi4", fp32_acc=kind == "LayerNorm" and norm == "layer")


def _matmul(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], arch: str, k: int
) -> dict[str, Any]:
    formats = [spec.format for spec in inputs[:2]]
    fp32_out = bool(outputs) and outputs[0].format == "float32"
    if all(fmt == "float32" for fmt in formats):
        fidelity = _exact(arch)
    elif all(fmt in BLOCK_FORMATS for fmt in formats):
        fidelity = "LoFi"
    else:
        fidelity = "HiFi2"
    if k > _LARGE_K:
        return _config(fidelity, fp32_acc=True, packer_l1_acc=True)
    return _config(fidelity, fp32_acc=fp32_out, packer_l1_acc=not fp32_out)


def _exact(arch: str) -> str:
    """HiFi3 on Wormhole, where HiFi4 into a float32 Dest can be less exact (tt-metal 38306)."""
    return "HiFi3" if arch == "wormhole_b0" else "HiFi4"


def _config(
    fidelity: str, *, fp32_acc: bool = False, packer_l1_acc: bool = False, approx: bool = False
) -> dict[str, Any]:
    return {
        "fidelity": fidelity,
        "fp32_acc": fp32_acc,
        "packer_l1_acc": packer_l1_acc,
        "approx": approx,
    }
