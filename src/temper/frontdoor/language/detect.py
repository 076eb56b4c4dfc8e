"""Whether a model is one of transformers that generates text; imports transformers only then."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from temper.frontdoor.loaded import LoadedGraph
from temper.options import Options

if TYPE_CHECKING:
    from temper.frontdoor.language.model import GenerativeModel


def generative(
    model: torch.nn.Module,
    options: Options,
    keep: Callable[[LoadedGraph], Any] | None = None,
    part: Callable[[torch.nn.Module], Any] | None = None,
) -> GenerativeModel | None:
    """What runs the model's calls with a cache, or None for any other model.

    ``keep`` is told of each graph that is loaded; ``part`` compiles an encoder.
    """
    mixin = getattr(sys.modules.get("transformers.generation.utils"), "GenerationMixin", None)
    if mixin is None or not isinstance(model, mixin) or not model.can_generate():
        return None
    from temper.frontdoor.language.model import GenerativeModel

    return GenerativeModel(model, options, keep, part)
