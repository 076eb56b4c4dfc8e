"""Notices what changed in a model since it was compiled: weights, submodules, plain attributes.

A captured program does not run the model's Python again, so whatever that Python would have read
is compared with what it was. Weights are told by their version counters; writes through ``.data``
or a numpy view leave those alone, so a sample of every weight's bytes is compared as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from types import FunctionType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from temper.torch_device.device import host_view, is_tt

Sample = NDArray[Any]
# Evenly spaced values of a weight that are compared at every call, all of a weight up to that size.
_SAMPLES = 16
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, type, FunctionType)
_OF_A_MODULE = ("_modules", "_forward_hooks", "_forward_pre_hooks")


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


class ModuleWatch:
    """What the Python of a model reads besides tensors: submodules, hooks, numbers and strings."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._modules = []
        for module in model.modules():
            held = module.__dict__
            plain = [k for k, v in held.items() if k[0] != "_" and isinstance(v, _PLAIN)]
            read = itemgetter(*_OF_A_MODULE, *plain)
            seen = tuple(dict(v) if isinstance(v, dict) else v for v in read(held))
            self._modules.append((module, type(module), held, len(held), read, seen))

    def changed(self) -> bool:
        """Whether the model's Python would do something else now."""
        try:
            return any(self._differ())
        except KeyError:  # an attribute is gone
            return True

    def _differ(self) -> Iterator[bool]:
        return (
            module.__class__ is not kind or len(held) != size or read(held) != seen
            for module, kind, held, size, read, seen in self._modules
        )
