"""Notices that a weight has other values than those that lie on the device.

Dynamo's guards watch what the model's Python reads; values of tensors they leave alone. Weights are
told by their version counters. Writes through ``.data`` or a numpy view leave those as they are, so
a sample of every weight's bytes is compared as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from temper.torch_device.device import host_view, is_tt

Sample = NDArray[Any]
# Evenly spaced values of a weight that are compared at every call, all of a weight up to that size.
_SAMPLES = 16
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class WeightWatch:
    """The state of some weights: identity of their memory, version, a sample of their bytes."""

    def __init__(self, weights: Iterable[torch.Tensor]) -> None:
        self._weights = list(weights)
        self._hosts = [host_view(t) if is_tt(t) else t for t in self._weights]
        self._versioned = [(t, t._version) for t in self._weights if not t.is_inference()]
        self._places = [(t, t.data_ptr()) for t in self._hosts]
        self._samples = _samples(self._hosts)
        self._seen = [np.concatenate(views) for views in self._samples]

    def changed(self) -> bool:
        """Whether any weight has other values now."""
        if any(tensor._version != version for tensor, version in self._versioned):
            return True
        if any(tensor.data_ptr() != place for tensor, place in self._places):
            return True
        pairs = zip(self._samples, self._seen, strict=True)
        return any(not np.array_equal(np.concatenate(views), seen) for views, seen in pairs)


def _samples(tensors: Iterable[torch.Tensor]) -> list[list[Sample]]:
    """Views of a few values of each tensor as integers, so that NaN equals itself; one list for
    each size of value."""
    found: dict[int, list[Sample]] = {}
    for tensor in tensors:
        if tensor.numel() == 0 or tensor.layout is not torch.strided:
            continue
        with torch.no_grad():
            real = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
            span = 1 + sum((n - 1) * s for n, s in zip(real.shape, real.stride(), strict=True))
            step = max(1, span // _SAMPLES)
            view = real.as_strided((-(-span // step),), (step,))
            found.setdefault(view.itemsize, []).append(view.view(_INTEGERS[view.itemsize]).numpy())
    return list(found.values())
