"""Closures over the native kernels, or None where the native library does not reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Step = Callable[[], Any]


def strided_copy(out: torch.Tensor, source: torch.Tensor) -> Step:
    """Copy a strided view into a buffer."""
    return lambda: out.copy_(source)


def rounding(out: torch.Tensor, format_name: str) -> Step | None:
    """Round a contiguous buffer in place."""
    return None


def masking(out: torch.Tensor, x: torch.Tensor, part: Any) -> Step | None:
    """Keep the high bits of every value."""
    return None


def epilogue(
    out: torch.Tensor, x: torch.Tensor, bias: torch.Tensor | None, chain: Any, format_name: str
) -> Step | None:
    """+ bias along the last dimension, a chain, a rounding."""
    return None


def epilogue_from(
    out: torch.Tensor, bias: torch.Tensor | None, chain: Any, format_name: str
) -> Callable[[torch.Tensor], Any] | None:
    """The same from a tensor that is known only at the call."""
    return None


def softmax(
    out: torch.Tensor, x: torch.Tensor, scale: float, mask: torch.Tensor | None, format_name: str
) -> Step | None:
    """softmax(x * scale + mask) over the last dimension, rounded."""
    return None


def pool(out: torch.Tensor, x: torch.Tensor, op: Any) -> Step | None:
    return None
