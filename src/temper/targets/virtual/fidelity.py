"""Operand masks of the matrix engine's fidelities, as a list of products to sum.

The multiplier takes 5 bits of SrcA (weights, in1) and 7 bits of SrcB (activations, in0) a phase:
the hidden one and 4 stored bits of A, the hidden one and 6 of B (FACTS 3.8). Phase 0 multiplies
both high parts, phase 1 A's remainder with B's high part, phase 2 A's high part with B's
remainder, phase 3 both remainders. LoFi runs phase 0, HiFi2 0-1, HiFi3 0-2, HiFi4 all. Summed by
distribution, that is one product for every fidelity but HiFi3, which needs two.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from temper import kernels
from temper.targets.virtual.values import MANTISSA_BITS

_A_HIGH_BITS = 4
_B_HIGH_BITS = 6
# float32 operands become TF32 on their way into the source registers: 10 stored bits.
_TF32_BITS = 10


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an operand: the stored bits to keep (None: all), or what is left of them."""

    keep_bits: int | None = None
    remainder: bool = False

    @property
    def whole(self) -> bool:
        return self.keep_bits is None


def products(fidelity: str, activation: str, weight: str) -> list[tuple[Part, Part]]:
    """The (activation, weight) parts to multiply and sum for operands of these formats."""
    b_bits, a_bits = MANTISSA_BITS[activation], MANTISSA_BITS[weight]
    b_all = Part(_TF32_BITS if activation == "float32" else None)
    a_all = Part(_TF32_BITS if weight == "float32" else None)
    b_high = Part(_B_HIGH_BITS) if b_bits > _B_HIGH_BITS else b_all
    a_high = Part(_A_HIGH_BITS) if a_bits > _A_HIGH_BITS else a_all
    if fidelity == "LoFi":
        return [(b_high, a_high)]
    if fidelity == "HiFi2":
        return [(b_high, a_all)]
    if fidelity == "HiFi3" and b_high != b_all and a_high != a_all:
        return [(b_high, a_all), (Part(_B_HIGH_BITS, remainder=True), a_high)]
    return [(b_all, a_all)]


def take_part(x: torch.Tensor, part: Part, out: torch.Tensor) -> None:
    """Write the part of every value of ``x`` into ``out`` (both contiguous float32)."""
    if part.keep_bits is None:
        out.copy_(x)
        return
    kernels.mask_bits_ptr(x.data_ptr(), out.data_ptr(), x.numel(), _mask(part.keep_bits))
    if part.remainder:
        full = torch.empty_like(x)
        kernels.mask_bits_ptr(x.data_ptr(), full.data_ptr(), x.numel(), _mask(_TF32_BITS))
        torch.sub(full, out, out=out)


def _mask(bits: int) -> int:
    """The bits of a float32 value that hold its sign, exponent and this much of the mantissa."""
    return 0xFFFFFFFF & -(1 << (23 - bits))
