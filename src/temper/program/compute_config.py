"""How an op computes: fidelity, accumulator and approximation, by level.

Level 0 is exact and slow: HiFi4 with float32 accumulation for every op. From level 1 on the op
gets what ttnn chooses for itself (FACTS 2.8): the rule in its record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temper.program.op import KINDS
from temper.program.tensor import TensorSpec


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
        return compute_attrs("HiFi4", fp32_acc=True)
    rule = KINDS[kind].compute
    return rule(inputs, outputs, arch, k, norm) if rule else compute_attrs("HiFi4")


def compute_attrs(
    fidelity: str, *, fp32_acc: bool = False, packer_l1_acc: bool = False, approx: bool = False
) -> dict[str, Any]:
    """The four compute attributes."""
    return {
        "fidelity": fidelity,
        "fp32_acc": fp32_acc,
        "packer_l1_acc": packer_l1_acc,
        "approx": approx,
    }
