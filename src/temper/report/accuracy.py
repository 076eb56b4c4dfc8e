"""What a cheaper format costs in accuracy, measured where it can be."""

from __future__ import annotations

from functools import lru_cache

from temper.formats import quantize, relative_rms

_FIDELITY = {
    "HiFi2": "the low bits of one operand are dropped; not measured here, 'temper tune' does",
    "LoFi": "five mantissa bits of the weights remain; not measured here, 'temper tune' does",
}


@lru_cache
def weight_format_note(fmt: str) -> str:
    """The error of normally distributed values in a format, measured now."""
    import numpy as np

    values = np.random.default_rng(0).standard_normal((256, 256), dtype=np.float32)
    error = relative_rms(quantize(values, fmt), values)
    return (
        f"{error:.1%} relative error of normal values in {fmt} (measured); "
        "for this model's outputs use 'temper tune'"
    )


def fidelity_note(fidelity: str) -> str:
    """What a fidelity costs in accuracy; empty where it is not known."""
    return _FIDELITY.get(fidelity, "")
