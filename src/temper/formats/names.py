"""Names of formats and fidelities: every spelling of the field, one canonical form. No numpy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from temper.errors import UsageError

# Canonical name -> the spellings of ttnn, tt-mlir, tt-xla, pybuda and torch, without case, dashes
# and underscores. tf32 lives only inside the matrix engine: no tensor is stored in it.
_FORMAT_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "float32": ("float32", "fp32", "f32", "float"),
    "bfloat16": ("bfloat16", "bf16", "float16b", "fp16b"),
    "bfloat8_b": ("bfloat8b", "bfpbf8", "bfp8b", "bfp8", "bf8", "bfloat8", "blockfp8", "bf8b"),
    "bfloat4_b": ("bfloat4b", "bfpbf4", "bfp4b", "bfp4", "bf4", "bfloat4", "blockfp4", "bf4b"),
    "bfloat2_b": ("bfloat2b", "bfpbf2", "bfp2b", "bfp2", "bf2", "bfloat2", "blockfp2", "bf2b"),
    "uint32": ("uint32", "u32", "ui32"),
    "int32": ("int32", "i32", "si32", "int"),
    "uint16": ("uint16", "u16", "ui16"),
    "uint8": ("uint8", "u8", "ui8"),
    "tf32": ("tf32", "tfloat32"),
}
_FIDELITY_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "LoFi": ("lofi",),
    "HiFi2": ("hifi2",),
    "HiFi3": ("hifi3",),
    "HiFi4": ("hifi4",),
}

# The formats a tensor of a device program can be stored in.
FORMATS: tuple[str, ...] = tuple(name for name in _FORMAT_SPELLINGS if name != "tf32")
FLOAT_FORMATS = frozenset({"float32", "bfloat16", "bfloat8_b", "bfloat4_b", "bfloat2_b"})
BLOCK_FORMATS = frozenset({"bfloat8_b", "bfloat4_b", "bfloat2_b"})
INTEGER_FORMATS = frozenset({"uint32", "int32", "uint16", "uint8"})
FIDELITIES: tuple[str, ...] = tuple(_FIDELITY_SPELLINGS)

_FORMATS_BY_SPELLING = {s: name for name, all_ in _FORMAT_SPELLINGS.items() for s in all_}
_FIDELITIES_BY_SPELLING = {s: name for name, all_ in _FIDELITY_SPELLINGS.items() for s in all_}
_NO_FLOAT16 = frozenset({"float16", "fp16", "f16", "half"})


def canonical_format(name: object, allowed: Iterable[str] = FORMATS) -> str:
    """The one name of a format: ``canonical_format("bfp_bf8") == "bfloat8_b"``.

    Accepts strings in any case with dashes or underscores, and objects whose text ends in a
    format's name, such as ``torch.bfloat16`` or ``ttnn.DataType.BFLOAT8_B``.
    """
    allowed = tuple(allowed)
    key = _key(name)
    found = _FORMATS_BY_SPELLING.get(key)
    if found in allowed:
        return found
    if found is not None:
        raise UsageError(f"format {found} cannot be used here", allowed=" ".join(allowed))
    if key in _NO_FLOAT16:
        raise UsageError(
            f"the chip's tensors have no IEEE half format {str(name)!r}",
            allowed=" ".join(allowed),
            try_=["bfloat16", "float32"],
        )
    spellings = [s for s in _FORMATS_BY_SPELLING if _FORMATS_BY_SPELLING[s] in allowed]
    near = _nearest(key, spellings, _FORMATS_BY_SPELLING)
    raise UsageError(f"unknown format {str(name)!r}", allowed=" ".join(allowed), try_=near)


def canonical_fidelity(name: object) -> str:
    """The one name of a math fidelity: ``canonical_fidelity("hifi2") == "HiFi2"``."""
    key = _key(name)
    found = _FIDELITIES_BY_SPELLING.get(key)
    if found is not None:
        return found
    near = _nearest(key, list(_FIDELITIES_BY_SPELLING), _FIDELITIES_BY_SPELLING)
    raise UsageError(f"unknown fidelity {str(name)!r}", allowed=" ".join(FIDELITIES), try_=near)


def _key(name: object) -> str:
    last = str(name).strip().rsplit(".", 1)[-1]
    return last.lower().replace("-", "").replace("_", "").replace(" ", "")


def _nearest(key: str, spellings: list[str], names: Mapping[str, str]) -> list[str] | None:
    close = difflib.get_close_matches(key, spellings, n=3, cutoff=0.5)
    return list(dict.fromkeys(names[spelling] for spelling in close)) or None
