"""Math fidelity and accumulator: which operand bits each phase multiplies, and what a sum keeps.

The multiplier takes 5 bits of the weight (SrcA) and 7 bits of the activation (SrcB) a phase, hidden
one included. Phase 0 multiplies the high parts, phase 1 the low part of the weight, phase 2 the low
part of the activation, phase 3 both low parts. LoFi is phase 0, HiFi4 all four.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from temper.errors import UsageError
from temper.formats.arrays import (
    Array,
    address,
    check_out,
    checked,
    empty_like,
    to_numpy,
    to_plain,
)
from temper.formats.names import canonical_fidelity
from temper.formats.quantization import quantize
from temper.formats.tiles import require_plain
from temper.kernels import mask_bits_ptr

Operand = Literal["activations", "weights"]

# float32 bits of the high part: sign, exponent and 4 (weights) or 6 (activations) mantissa bits.
HIGH_MASKS = {"weights": 0xFFF80000, "activations": 0xFFFE0000}
# (part of the activation, part of the weight) that each phase multiplies.
PHASES = (("high", "high"), ("high", "low"), ("low", "high"), ("low", "low"))
PHASE_COUNT = {"LoFi": 1, "HiFi2": 2, "HiFi3": 3, "HiFi4": 4}
# Depth of one step of the matrix engine: a 16-bit accumulator is rounded after each.
K_STEP = 16


def operand_mask(operand: Operand, fidelity: object) -> int | None:
    """The float32 bits of an operand that take part, or None where all do.

    LoFi and HiFi2 are plain masks. HiFi3 leaves out only the product of both low parts, which no
    mask expresses: use :func:`split_operand`.
    """
    name = canonical_fidelity(fidelity)
    high = HIGH_MASKS[_checked_operand(operand)]
    masked = name == "LoFi" or (name == "HiFi2" and operand == "activations")
    return high if masked else None


def mask_operand(
    array: Array, operand: Operand, fidelity: object, out: Array | None = None
) -> Array:
    """The operand as the phases of LoFi or HiFi2 see it; unchanged for HiFi3 and HiFi4."""
    mask = operand_mask(operand, fidelity)
    array = to_plain(checked(array), "float32")
    shape = tuple(array.shape)
    if out is not None:
        check_out(out, array, shape, "float32")
        require_plain(out, "float32")
    result = empty_like(array, shape, "float32") if out is None else out
    count = int(np.prod(shape, dtype=np.int64))
    mask_bits_ptr(address(array), address(result), count, 0xFFFFFFFF if mask is None else mask)
    return result


def split_operand(array: Array, operand: Operand) -> tuple[Array, Array]:
    """The high part and the exact remainder of an operand."""
    array = to_plain(checked(array), "float32")
    _checked_operand(operand)
    high = mask_operand(array, operand, "LoFi")
    return high, array - high


def round_accumulator(array: Array, fp32_acc: bool = False, out: Array | None = None) -> Array:
    """What Dest keeps of a sum: float32 as it is, or bfloat16 (nearest even).

    The rounding mode of the packer is uncertain: its documentation says ties away from zero, its
    host twin ties to even.
    """
    return quantize(array, "float32" if fp32_acc else "bfloat16", out)


def matmul_reference(
    activations: Array, weights: Array, fidelity: object = "HiFi4", fp32_acc: bool = False
) -> NDArray[Any]:
    """A slow matrix product that follows phases and accumulator step by step, as float32.

    Operands are truncated to tf32 as the source registers hold them. Each 16-deep step adds exact
    products in float64, rounds once to float32 and, without ``fp32_acc``, the sum to bfloat16.
    """
    a = np.asarray(quantize(to_numpy(activations), "tf32"))
    b = np.asarray(quantize(to_numpy(weights), "tf32"))
    if a.ndim < 1 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise UsageError(f"cannot multiply shapes {a.shape} and {b.shape}")
    parts_a = dict(zip(("high", "low"), split_operand(a, "activations"), strict=True))
    parts_b = dict(zip(("high", "low"), split_operand(b, "weights"), strict=True))
    phases = PHASES[: PHASE_COUNT[canonical_fidelity(fidelity)]]
    total = np.zeros((a[..., :0] @ b[..., :0, :]).shape, np.float32)
    for k in range(0, a.shape[-1], K_STEP):
        step = slice(k, k + K_STEP)
        product = sum(
            parts_a[x][..., step].astype(np.float64) @ parts_b[y][..., step, :].astype(np.float64)
            for x, y in phases
        )
        total = round_accumulator(total + np.asarray(product).astype(np.float32), fp32_acc)
    return total


def _checked_operand(operand: str) -> str:
    if operand not in HIGH_MASKS:
        raise UsageError(f"unknown operand {operand!r}", allowed=" ".join(HIGH_MASKS))
    return operand
