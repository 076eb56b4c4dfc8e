"""The op ``torch.ops.tt.weight_dtype_override(w, "bfp_bf8")``: an identity that carries a format.

It is one node of the captured graph; the compiler reads the format from it and drops it. In
eager torch it returns the weight's values unchanged.
"""

from __future__ import annotations

from typing import Any

import torch

from temper.errors import UsageError
from temper.formats.names import canonical_format

# Canonical format -> the name that tt-xla's override files use.
OVERRIDE_NAMES = {"bfloat16": "bf16", "bfloat8_b": "bfp_bf8", "bfloat4_b": "bfp_bf4"}

_library: torch.library.Library | None = None


def override_dtype(name: object) -> str:
    """``bf16``, ``bfp_bf8`` or ``bfp_bf4`` for any spelling of the three formats."""
    # `import torch` may define the op (autoload.py); it should not pay for more than that.

    try:
        return OVERRIDE_NAMES[canonical_format(name, allowed=OVERRIDE_NAMES)]
    except UsageError as error:
        near = error.details.get("try", "").split(", or ")
        raise UsageError(
            f"weight dtype {name!r} is none of the three a weight can have",
            allowed=" ".join(OVERRIDE_NAMES.values()),
            try_=[OVERRIDE_NAMES[n] for n in near if n in OVERRIDE_NAMES],
        ) from None


def ensure_op_defined() -> None:
    """Define the op once in this process."""
    global _library
    if _library is not None:
        return
    library = torch.library.Library("tt", "FRAGMENT")  # type: ignore[no-untyped-call]
    schema = "weight_dtype_override(Tensor w, str dtype) -> Tensor"
    library.define(schema)  # type: ignore[no-untyped-call]
    name = "tt::weight_dtype_override"
    torch.library.impl(name, "CompositeExplicitAutograd", lib=library)(_identity)
    torch.library.register_fake(name, _fake, lib=library)
    torch.library.register_autograd(name, _backward, lib=library)
    _library = library


def _identity(w: torch.Tensor, dtype: str) -> torch.Tensor:
    # The schema promises a fresh tensor; functionalisation relies on it.
    override_dtype(dtype)
    return w.clone()


def _fake(w: torch.Tensor, dtype: str) -> torch.Tensor:
    override_dtype(dtype)
    return torch.empty_like(w)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    return grad, None
