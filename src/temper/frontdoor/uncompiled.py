"""Says when ``torch.compile(..., backend="tt")`` made no graph of what it was given.

Where Dynamo skips a function (a generator, code of torch itself, a packed sequence) it never asks a
backend, and the model runs in eager torch without a word.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import config, external_utils, trace_rules
from torch._dynamo.eval_frame import OptimizeContext, innermost_backend

_TORCH = os.path.dirname(torch.__file__)
# One number for every call of a graph of ours, in this process.
graph_calls = itertools.count()


def warn_uncompiled(name: str, stacklevel: int) -> None:
    """Say that a model runs wholly on the host."""
    warnings.warn(
        f"no part of {name} could be captured: it runs in eager torch on the host",
        stacklevel=stacklevel + 1,
    )


def watch_first_calls(backend: Callable[..., Any]) -> None:
    """From now on, what torch compiles with this backend tells when its first call ran no graph."""
    made = OptimizeContext.__call__

    @functools.wraps(made)
    def compiled(self: OptimizeContext, fn: Any) -> Any:
        chosen = innermost_backend(getattr(self, "callback", None))  # type: ignore[arg-type]
        if getattr(chosen, "compiler_fn", chosen) is not backend or not _is_function(fn):
            return made(self, fn)
        return _watched(made(self, _seen_by_dynamo(fn)), fn)

    OptimizeContext.__call__ = compiled  # type: ignore[method-assign]


def _is_function(fn: Any) -> bool:
    return not isinstance(fn, (type, torch.nn.Module))


def _seen_by_dynamo(fn: Any) -> Any:
    """``layer.compile()`` of torch's own layers: their code is skipped unless a frame that is not
    torch's calls it, as torch.compile(layer) arranges."""
    owner: Any = getattr(fn, "__self__", None)
    in_place = getattr(fn, "__name__", "") == "_call_impl" and isinstance(owner, torch.nn.Module)
    if in_place and trace_rules.check(owner.forward):
        return external_utils.wrap_inline(fn)
    return fn


def _watched(call: Callable[..., Any], fn: Any) -> Callable[..., Any]:
    owner = getattr(fn, "__self__", getattr(fn, "__wrapped__", None))
    module = isinstance(owner, torch.nn.Module)
    name = type(owner).__name__ if module else getattr(fn, "__name__", "the function")
    told = False

    @functools.wraps(call)
    def watched(*args: Any, **kwargs: Any) -> Any:
        nonlocal told
        if told or config.disable or torch.compiler.is_compiling():
            return call(*args, **kwargs)
        before = next(graph_calls)
        made = call(*args, **kwargs)
        told = True
        if next(graph_calls) == before + 1:
            warn_uncompiled(name, stacklevel=_callers_level())
        return made

    return watched


def _callers_level() -> int:
    """How far up the stack the user's line is, behind torch's own frames and the caller of this."""
    frame, level = sys._getframe(2), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_TORCH):
        frame, level = frame.f_back, level + 1
    return level
