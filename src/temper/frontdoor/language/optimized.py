"""``torch.compile(model, backend="tt")`` of a generative model: ``generate`` runs on the chip too.

torch hands a backend graphs, never the model; its wrapper forwards ``generate`` to the model
itself, which would then call the model in eager torch. The wrapper of a transformers model with
this backend therefore gets our calls when it is made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.eval_frame import OptimizedModule, innermost_backend

from temper.frontdoor.language.detect import generative
from temper.options import Options, resolve


def watch_wrappers(backend: Callable[..., Any]) -> None:
    """From now on, wrappers that torch makes with this backend run language models on the chip."""
    made = OptimizedModule.__init__
    if hasattr(made, "_tt_backend"):
        return

    @functools.wraps(made)
    def init(self: OptimizedModule, mod: torch.nn.Module, dynamo_ctx: Any) -> None:
        made(self, mod, dynamo_ctx)
        chosen = innermost_backend(getattr(dynamo_ctx, "callback", None))  # type: ignore[arg-type]
        if getattr(chosen, "compiler_fn", chosen) is backend:
            given = getattr(chosen, "kwargs", {}).get("options")
            _equip(self, mod, resolve(given), lambda part: torch.compile(
                part, backend=backend, options=given))  # fmt: skip

    init._tt_backend = backend  # type: ignore[attr-defined]
    OptimizedModule.__init__ = init  # type: ignore[method-assign]


def _equip(
    wrapper: OptimizedModule,
    model: torch.nn.Module,
    options: Options,
    part: Callable[[torch.nn.Module], Any],
) -> None:
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
