"""The native library and its pure-Python twin: the same functions, the same bits.

Functions ending in ``_ptr`` take addresses of contiguous buffers and sizes as integers and check
nothing; ``temper.formats`` is the checked surface. ``native`` is the compiled module, or None.
Set TEMPER_PURE=1 to leave it out.
"""

from __future__ import annotations

import os
import warnings
from types import ModuleType
from typing import TYPE_CHECKING

# Format arguments of quantize_ptr, pack_ptr and unpack_ptr; the same numbers stand in formats.cpp.
FORMAT_CODES = {
    "float32": 0,
    "bfloat16": 1,
    "bfloat8_b": 2,
    "bfloat4_b": 3,
    "bfloat2_b": 4,
    "tf32": 5,
}


def _load_native() -> ModuleType | None:
    if os.environ.get("TEMPER_PURE", "") not in ("", "0"):
        return None
    try:
        from temper.kernels import _native  # type: ignore[attr-defined, unused-ignore]
    except ImportError as error:
        warnings.warn(
            f"temper: the native kernels are missing ({error}); "
            "the pure-Python kernels give the same bits, but slowly",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    module: ModuleType = _native
    return module


native: ModuleType | None = _load_native()

if TYPE_CHECKING or native is None or not hasattr(native, "fold_ptr"):
    # A library that was built before the fold was written serves all others.
    from temper.kernels.pure import fold_ptr
else:
    fold_ptr = native.fold_ptr

if TYPE_CHECKING or native is None:
    from temper.kernels.pure import (
        add_round_bf16_ptr,
        mask_bits_ptr,
        pack_ptr,
        quantize_ptr,
        quantize_to_ptr,
        round_bf16_ptr,
        round_bf16_to_ptr,
        tilize_ptr,
        unpack_ptr,
        untilize_ptr,
    )
else:
    add_round_bf16_ptr = native.add_round_bf16_ptr
    mask_bits_ptr = native.mask_bits_ptr
    pack_ptr = native.pack_ptr
    quantize_ptr = native.quantize_ptr
    quantize_to_ptr = native.quantize_to_ptr
    round_bf16_ptr = native.round_bf16_ptr
    round_bf16_to_ptr = native.round_bf16_to_ptr
    tilize_ptr = native.tilize_ptr
    unpack_ptr = native.unpack_ptr
    untilize_ptr = native.untilize_ptr

__all__ = [
    "FORMAT_CODES",
    "add_round_bf16_ptr",
    "fold_ptr",
    "mask_bits_ptr",
    "native",
    "pack_ptr",
    "quantize_ptr",
    "quantize_to_ptr",
    "round_bf16_ptr",
    "round_bf16_to_ptr",
    "tilize_ptr",
    "unpack_ptr",
    "untilize_ptr",
]
