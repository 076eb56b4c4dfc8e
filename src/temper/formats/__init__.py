"""Number formats of the chip: quantise, pack, tiles, fidelity, error measures.

Names and sizes need no numpy; the rest is loaded at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from temper.formats.names import (
    BLOCK_FORMATS,
    FIDELITIES,
    FLOAT_FORMATS,
    FORMATS,
    INTEGER_FORMATS,
    canonical_fidelity,
    canonical_format,
)
from temper.formats.sizes import TILE, TILE_BYTES, padded_shape, tile_bytes, tile_count

if TYPE_CHECKING:
    from temper.formats.fidelity import (
        mask_operand,
        matmul_reference,
        operand_mask,
        round_accumulator,
        split_operand,
    )
    from temper.formats.measures import max_ulp, pcc, relative_rms
    from temper.formats.packing import pack, packed_shape, unpack
    from temper.formats.quantization import quantize, to_integer
    from temper.formats.tiles import tilize, untilize

_LAZY = {
    "mask_operand": "fidelity",
    "matmul_reference": "fidelity",
    "max_ulp": "measures",
    "operand_mask": "fidelity",
    "pack": "packing",
    "packed_shape": "packing",
    "pcc": "measures",
    "quantize": "quantization",
    "relative_rms": "measures",
    "round_accumulator": "fidelity",
    "split_operand": "fidelity",
    "tilize": "tiles",
    "to_integer": "quantization",
    "unpack": "packing",
    "untilize": "tiles",
}

__all__ = [
    "BLOCK_FORMATS",
    "FIDELITIES",
    "FLOAT_FORMATS",
    "FORMATS",
    "INTEGER_FORMATS",
    "TILE",
    "TILE_BYTES",
    "canonical_fidelity",
    "canonical_format",
    "mask_operand",
    "matmul_reference",
    "max_ulp",
    "operand_mask",
    "pack",
    "packed_shape",
    "padded_shape",
    "pcc",
    "quantize",
    "relative_rms",
    "round_accumulator",
    "split_operand",
    "tile_bytes",
    "tile_count",
    "tilize",
    "to_integer",
    "unpack",
    "untilize",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"temper.formats.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
