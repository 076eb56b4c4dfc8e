"""``torch.compile(model, backend="tt")`` and ``model.compile(backend="tt")`` of a generative model.

torch hands a backend graphs, never the model; ``generate`` would run the model's own loop, which
knows nothing of our programs. What torch makes of a transformers model with this backend therefore
gets our calls when it is made: a wrapper, or the model itself where it is compiled in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.eval_frame import OptimizeContext, OptimizedModule, innermost_backend

from temper.frontdoor.language.detect import generative
from temper.options import Options, resolve

Part = Callable[[torch.nn.Module], Any]


def watch_wrappers(backend: Callable[..., Any]) -> None:
    """From now on, what torch compiles with this backend runs language models on the chip."""
    made = OptimizeContext.__call__
    if hasattr(made, "_tt_backend"):
        return

    @functools.wraps(made)
    def compiled(self: OptimizeContext, fn: Any) -> Any:
        result = made(self, fn)
        chosen = innermost_backend(getattr(self, "callback", None))  # type: ignore[arg-type]
        if getattr(chosen, "compiler_fn", chosen) is not backend:
            return result
        given = getattr(chosen, "kwargs", {}).get("options")

        def part(module: torch.nn.Module) -> Any:
            return torch.compile(module, backend=backend, options=given)

        if isinstance(result, OptimizedModule) and isinstance(fn, torch.nn.Module):
            _equip(result, fn, resolve(given), part)
        elif getattr(fn, "__name__", "") == "_call_impl":  # torch.nn.Module.compile
            return _in_place(fn.__self__, result, resolve(given), part)
        return result

    compiled._tt_backend = backend  # type: ignore[attr-defined]
    OptimizeContext.__call__ = compiled  # type: ignore[method-assign]


def _equip(wrapper: OptimizedModule, model: torch.nn.Module, options: Options, part: Part) -> None:
    language = generative(model, options, part=part)
    if language is None:
        return
    forward = wrapper.forward

    def calls(*args: Any, **kwargs: Any) -> Any:
        if language.takes(args, kwargs):
            return language.call(args, kwargs)
        return forward(*args, **kwargs)

    wrapper.forward = calls
    wrapper.__dict__["generate"] = functools.partial(language.generate, wrapper)


def _in_place(
    model: torch.nn.Module, call: Callable[..., Any], options: Options, part: Part
) -> Callable[..., Any]:
    """What ``model(...)`` calls from now on; copies and pickles of the model are without it."""
    language = generative(model, options, part=part)
    if language is None:
        return call

    def calls(*args: Any, **kwargs: Any) -> Any:
        if language.takes(args, kwargs):
            return language.call(args, kwargs)
        return call(*args, **kwargs)

    calls.language = language  # type: ignore[attr-defined]
    _watch_generate()
    return calls


def _watch_generate() -> None:
    """``generate`` of a model that was compiled in place is that of its programs."""
    from transformers import GenerationMixin

    made: Callable[..., Any] = GenerationMixin.generate
    if hasattr(made, "_tt_watched"):
        return

    @functools.wraps(made)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        language = getattr(self.__dict__.get("_compiled_call_impl"), "language", None)
        if language is None:
            return made(self, *args, **kwargs)
        return language.generate(self, *args, loop=made, **kwargs)

    generate._tt_watched = True  # type: ignore[attr-defined]
    GenerationMixin.generate = generate  # type: ignore[method-assign]
