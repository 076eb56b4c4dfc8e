"""A model under Dynamo: its guards decide whether a compiled graph still holds for a call.

Dynamo reads the model's Python as the interpreter would, guards everything that it read, and
replays what the Python changed. A call whose guards hold costs what eager costs; else it is
compiled anew. This file adds what a long-lived process needs: a bound on what is kept.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._C._dynamo import eval_frame as guarded
from torch._dynamo import config, trace_rules
from torch._dynamo.convert_frame import CatchErrorsWrapper
from torch._dynamo.eval_frame import OptimizeContext

from temper.capture.capture import hushed
from temper.capture.dynamo import fixed_sizes
from temper.capture.dynamo_memory import DROPPED, drop_variant, in_own_context

# Compiled variants of one function of a model that are kept; the least recently used goes first.
KEPT_VARIANTS = 32
_NO_LIMIT = 1 << 30
_WHILE_TRACING = {
    "accumulated_recompile_limit": _NO_LIMIT,
    # One program a shape: sizes are numbers, as the chip wants them.
    "automatic_dynamic_shapes": False,
}


class Region:
    """What Dynamo compiled for one model, by the functions that it compiled."""

    def __init__(self, model: torch.nn.Module, backend: Callable[..., Any]) -> None:
        optimised = torch._dynamo.optimize(
            backend, isolate_recompiles=True, recompile_limit=_NO_LIMIT
        )
        codes: set[types.CodeType] = set()
        self.frames = 0  # how many functions were looked at
        if isinstance(optimised, OptimizeContext):  # else TORCHDYNAMO_DISABLE is set
            key, inner = optimised._isolate_recompiles_id, optimised.callback
            assert isinstance(inner, CatchErrorsWrapper)
            optimised.callback = _Converter(inner, key, codes, self)
            weakref.finalize(self, _forget, codes, key)
        self.run: Callable[..., Any] = optimised(model)


class _Converter(CatchErrorsWrapper):
    """Dynamo's conversion of a function, within our bounds. Runs only where no guards hold."""

    def __init__(
        self, inner: CatchErrorsWrapper, key: int, codes: set[types.CodeType], region: Region
    ) -> None:
        super().__init__(inner._torchdynamo_orig_backend, inner.hooks)
        self._key = key
        self._codes = codes
        self._region = weakref.ref(region)

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        if trace_rules.check(frame.f_code, frame=frame):  # torch's own frames, at every call
            return super().__call__(frame, cache_entry, frame_state)
        region = self._region()
        if region is not None:
            region.frames += 1
        self._codes.add(frame.f_code)
        for entry in _entries(frame.f_code, self._key)[KEPT_VARIANTS - 1 :]:
            drop_variant(entry.guard_manager)
        return in_own_context(self._convert, frame, cache_entry, frame_state)

    def _convert(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        fixed_sizes.set(True)
        with config.patch(_WHILE_TRACING), hushed():
            return super().__call__(frame, cache_entry, frame_state)


def _entries(code: types.CodeType, key: int) -> list[Any]:
    """The variants of a function that are alive, most recently used first."""
    return [
        entry
        for entry in guarded._get_cache_entries_for_region(code, key)
        if entry.guard_manager is not DROPPED
    ]


def _forget(codes: set[types.CodeType], key: int) -> None:
    for code in codes:
        for entry in _entries(code, key):
            drop_variant(entry.guard_manager)
