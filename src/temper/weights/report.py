"""What became of each requested weight format: the record, and what a layer's kind foretells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

# Only matmul and linear weights convert.
_NO_MATMUL = "not a matmul weight"


@dataclass(frozen=True)
class WeightFormatEntry:
    """One parameter and one request for its format; ``effective`` is None until compiled."""

    parameter: str
    requested: str
    # Where the request came from: the pattern, "default", an option's name, or "in the model".
    origin: str
    effective: str | None = None
    reason: str = ""

    @property
    def took_effect(self) -> bool:
        return self.effective == self.requested

    def resolved(self, effective: str, reason: str = "") -> WeightFormatEntry:
        """The same request with its outcome, as the compiler found it."""
        return replace(self, effective=effective, reason=reason)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "took_effect": self.took_effect}


@dataclass(frozen=True)
class Outlook:
    """Whether a parameter can take a block format, as far as its layer tells without compiling."""

    converts: bool | None  # None: depends on how the model uses it
    reason: str


def outlook(module: nn.Module, parameter: torch.Tensor) -> Outlook:
    """What a format on this parameter will do, judged by the layer that owns it."""
    kind = type(module).__name__
    if isinstance(module, nn.modules.conv._ConvNd):
        return Outlook(False, f"convolution weight, {_NO_MATMUL}")
    if isinstance(module, nn.modules.rnn.RNNBase):
        return Outlook(False, f"{kind} weight, {_NO_MATMUL}")
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return Outlook(False, f"embedding table, {_NO_MATMUL}")
    if isinstance(parameter, nn.parameter.UninitializedParameter):
        return Outlook(None, "lazy parameter without a shape: run the model once first")
    if parameter.dim() < 2:
        return Outlook(False, f"a vector, {_NO_MATMUL}")
    if "norm" in kind.lower():
        return Outlook(False, f"normalisation parameter, {_NO_MATMUL}")
    if not parameter.is_floating_point():
        return Outlook(False, f"integer parameter, {_NO_MATMUL}")
    remark = dtype_complaint(parameter)
    # transformers' Conv1D is a matmul with the weight stored untransposed.
    if isinstance(module, (nn.Linear, nn.MultiheadAttention)) or kind == "Conv1D":
        return Outlook(True, remark)
    return Outlook(
        None, remark or f"{kind} is no standard layer: converts where it is a matmul operand"
    )


def dtype_complaint(parameter: torch.Tensor) -> str:
    """The remark that a parameter's torch dtype earns, or nothing."""
    if parameter.dtype is torch.bfloat16:
        return ""
    dtype = str(parameter.dtype).removeprefix("torch.")
    return f"the weight is {dtype}: cast the model with model.to(torch.bfloat16) first"


def summary(entries: Iterable[WeightFormatEntry]) -> dict[str, int]:
    """How many requests took effect, how many did not, and how many are not compiled yet."""
    counts = {"took_effect": 0, "no_effect": 0, "pending": 0}
    for entry in entries:
        if entry.took_effect:
            counts["took_effect"] += 1
        elif entry.effective is None and not entry.reason:
            counts["pending"] += 1
        else:
            counts["no_effect"] += 1
    return counts
