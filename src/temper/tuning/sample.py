"""How many samples an accuracy is measured on: fixed by statistics, never by the machine's load."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from temper.tuning.prepared import Source, first_output, prepared, reference

# With n values the 95% interval of 1 - PCC is 2 * 1.96 / sqrt(n - 3) of it to either side, by
# Fisher's transform of a correlation near 1: this many values make it a tenth.
VALUES = 1540
# Below this many values a correlation says nothing; see accuracy.judged.
FEW = 30
# Work of one accuracy run: a model with few outputs and much work gets a wider interval instead.
_MOST_FLOP = 4e11
_MOST_SAMPLES = 4096


@dataclass(frozen=True)
class Sample:
    """The inputs of accuracy runs: their batch (None: as the callable gives it), the reference."""

    batch: int | None
    expected: torch.Tensor

    @property
    def values(self) -> int:
        """How many output values the accuracy is measured on."""
        return self.expected.numel()

    def interval(self, pcc: float) -> tuple[float, float]:
        """The 95% interval of a measured correlation, by Fisher's transform."""
        if self.values < 4 or abs(pcc) >= 1.0:
            return (pcc, pcc) if abs(pcc) >= 1.0 else (-1.0, 1.0)
        width = 1.96 / math.sqrt(self.values - 3)
        return math.tanh(math.atanh(pcc) - width), math.tanh(math.atanh(pcc) + width)

    @property
    def text(self) -> str:
        """What the accuracy rests on, in words."""
        many = f"{self.batch} samples, " if self.batch else "the given inputs, "
        return f"{many}{self.values:,} output values"


def choose(source: Source, scalable: bool, wanted: int | None = None) -> Sample:
    """As many samples as make ``VALUES`` outputs, within a bound on the work; or as asked for."""
    if not scalable:
        return Sample(None, reference(source, None))
    if wanted is not None:
        return Sample(wanted, reference(source, wanted))
    one = reference(source, 1)
    if one.numel() >= VALUES:
        return Sample(1, one)
    batch = min(math.ceil(VALUES / max(1, one.numel())), _MOST_SAMPLES)
    batch = max(1, min(batch, int(_MOST_FLOP / max(1, flop(source)))))
    return Sample(batch, one if batch == 1 else reference(source, batch))


def flop(source: Source) -> int:
    """Arithmetic of one sample, as torch counts it."""
    from torch.utils.flop_counter import FlopCounterMode

    loaded = prepared(source, 1, "float32")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        first_output(loaded.model(*loaded.inputs, **loaded.kwargs))
    return int(counter.get_total_flops())
