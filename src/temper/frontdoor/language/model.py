"""A transformers model whose calls and ``generate`` run on the chip."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from transformers.cache_utils import Cache, EncoderDecoderCache

from temper.frontdoor.language.runner import StepRunner
from temper.frontdoor.language.runtime import LanguageRuntime
from temper.frontdoor.language.seq2seq import Seq2SeqRuntime
from temper.frontdoor.loaded import LoadedGraph
from temper.options import Options

# Arguments of a call that the programs take; others change nothing when they are not given.
_TAKEN = ("input_ids", "attention_mask", "position_ids", "past_key_values", "logits_to_keep",
          "return_dict", "use_cache")  # fmt: skip
_PAIR_TAKEN = ("decoder_input_ids", "encoder_outputs", "attention_mask", "past_key_values",
               "return_dict", "use_cache", "decoder_attention_mask")  # fmt: skip
_UNREAD = ("use_cache", "decoder_attention_mask")
_IDLE = (None, False, 0)


class GenerativeModel:
    """Runs the calls with a cache of one model, and the loop of ``generate``."""

    def __init__(
        self,
        model: torch.nn.Module,
        options: Options,
        keep: Callable[[LoadedGraph], Any] | None = None,
        part: Callable[[torch.nn.Module], Any] | None = None,
    ) -> None:
        self._model: Any = model
        config: Any = model.config
        self._pair = bool(config.is_encoder_decoder)
        kind: type[StepRunner] = Seq2SeqRuntime if self._pair else LanguageRuntime
        self.runtime: StepRunner = kind(model, options, keep)
        self._part = part  # compiles a part of the model: the encoder
        self._encoder: Any = None

    def takes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call has a cache, or asks for one, and nothing that the programs lack."""
        if self._pair:
            return _takes_pair(args, kwargs)
        cache = kwargs.get("past_key_values")
        if isinstance(cache, EncoderDecoderCache) or len(args) > 1:
            return False
        if not isinstance(cache, Cache) and kwargs.get("use_cache") is not True:
            return False
        ids = kwargs.get("input_ids", args[0] if args else None)
        mask = kwargs.get("attention_mask")
        plain = mask is None or (isinstance(mask, torch.Tensor) and mask.dim() == 2)
        rest = [k for k, v in kwargs.items() if k not in _TAKEN and not _idle(v)]
        mine = isinstance(ids, torch.Tensor) and plain and not rest
        if not mine and isinstance(cache, Cache):
            cause = ", ".join(rest) or ("a mask of four dimensions" if not plain else "no ids")
            warnings.warn(
                f"this call of {type(self._model).__name__} with a cache does not use the prefill "
                f"and decode programs: {cause}; a program is compiled for each length instead",
                stacklevel=3,
            )
        return mine and kwargs.get("use_cache") is not False

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that ``takes`` has accepted."""
        names = _PAIR_TAKEN if self._pair else _TAKEN
        given = {k: v for k, v in kwargs.items() if k in names and k not in _UNREAD}
        if args:
            given["input_ids"] = args[0]
        runtime: Any = self.runtime
        return runtime(**{k: v for k, v in given.items() if v is not None})

    def generate(self, whole: Any, *args: Any, **kwargs: Any) -> Any:
        """transformers' own loop, whose every forward call is a call of ``whole``."""
        model: Any = self._model
        # The same module with another forward: hooks, weights and config are the model's own.
        stand_in = copy.copy(model)
        runtime = self.runtime

        @functools.wraps(model.forward)
        def forward(*inner: Any, **given: Any) -> Any:
            return whole(*inner, **given)

        prepare = model.prepare_inputs_for_generation

        @functools.wraps(prepare)
        def prepared(input_ids: torch.Tensor, **given: Any) -> Any:
            cache = given.get("past_key_values")
            if isinstance(runtime, LanguageRuntime) and isinstance(cache, Cache):
                # Before transformers looks whether the cache is static: it would make the mask
                # four-dimensional then.
                runtime.adopt(cache, input_ids.shape[0], input_ids.shape[1])
            return prepare(input_ids, **given)

        caching = model._prepare_cache_for_generation

        def cached(config: Any, model_kwargs: Any, mode: Any, batch: int, length: int) -> Any:
            runtime.expected = int(length)
            return caching(config, model_kwargs, mode, batch, length)

        stand_in.__dict__.update(
            forward=forward,
            prepare_inputs_for_generation=prepared,
            _prepare_cache_for_generation=cached,
        )
        if self._pair and self._part is not None:
            stand_in.__dict__["get_encoder"] = self._compiled_encoder
        runtime.last_row_only = True
        try:
            return stand_in.generate(*args, **kwargs)
        finally:
            runtime.last_row_only, runtime.expected = False, 0

    def _compiled_encoder(self, *args: Any, **kwargs: Any) -> Any:
        if self._encoder is None and self._part is not None:
            self._encoder = self._part(self._model.get_encoder(*args, **kwargs))
        return self._encoder


def _takes_pair(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """The same for an encoder-decoder: a decoder's call with what its encoder gave."""
    cache = kwargs.get("past_key_values")
    if args or not isinstance(cache, EncoderDecoderCache) or kwargs.get("use_cache") is False:
        return False
    mask, own = kwargs.get("attention_mask"), kwargs.get("decoder_attention_mask")
    masks = (mask is None or mask.dim() == 2) and (own is None or bool(own.all()))
    both = kwargs.get("decoder_input_ids") is not None and kwargs.get("encoder_outputs") is not None
    rest = [k for k, v in kwargs.items() if k not in _PAIR_TAKEN and not _idle(v)]
    return both and masks and not rest


def _idle(value: Any) -> bool:
    return any(value is one for one in _IDLE) or (isinstance(value, int) and value == 0)
