"""A transformers model whose calls and ``generate`` run on the chip."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.generation.configuration_utils import GenerationMode

from temper.frontdoor.language.conversation import hand_back
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
_MORE_OUTPUTS = ("output_hidden_states", "output_attentions")  # what no step gives
# Kinds of generation that read nothing but the last row of a call's logits.
_ONE_ROW = frozenset({GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE,
                      GenerationMode.BEAM_SEARCH, GenerationMode.BEAM_SAMPLE})  # fmt: skip


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
        # In the loop of generate a call without a cache is a prompt like any other.
        looped = self.runtime.looping and cache is None and kwargs.get("use_cache") is False
        if not isinstance(cache, Cache) and kwargs.get("use_cache") is not True and not looped:
            return False
        ids = kwargs.get("input_ids", args[0] if args else None)
        mask = kwargs.get("attention_mask")
        plain = mask is None or (isinstance(mask, torch.Tensor) and mask.dim() == 2)
        rest = [k for k, v in kwargs.items() if k not in _TAKEN and not _idle(v)]
        mine = isinstance(ids, torch.Tensor) and plain and not rest
        if mine and kwargs.get("use_cache") is False and not looped:
            mine = False
        elif not mine and isinstance(cache, Cache):
            cause = ", ".join(rest) or ("a mask of four dimensions" if not plain else "no ids")
            self._by_length(cause, stacklevel=4)
        elif mine:
            mine = self.steps_agree
        if not mine and isinstance(cache, Cache):
            hand_back(cache)
        return mine

    @cached_property
    def steps_agree(self) -> bool:
        """Whether steps of this model give what it gives: tried once, told where they do not."""
        runtime: Any = self.runtime
        if self._pair:
            return True
        why = runtime.unfit()
        if why:
            self._by_length(why, stacklevel=5)
        return not why

    def _by_length(self, cause: str, stacklevel: int) -> None:
        warnings.warn(
            f"{type(self._model).__name__} does not use the prefill and decode programs here: "
            f"{cause}; a program is compiled for each length instead",
            stacklevel=stacklevel,
        )

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that ``takes`` has accepted."""
        names = _PAIR_TAKEN if self._pair else _TAKEN
        given = {k: v for k, v in kwargs.items() if k in names and k not in _UNREAD}
        if args:
            given["input_ids"] = args[0]
        runtime: Any = self.runtime
        made = runtime(**{k: v for k, v in given.items() if v is not None})
        if kwargs.get("use_cache") is False:
            made.past_key_values = None
        return made

    def generate(
        self, whole: Any, *args: Any, loop: Callable[..., Any] | None = None, **kwargs: Any
    ) -> Any:
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
            if (
                isinstance(runtime, LanguageRuntime)
                and isinstance(cache, Cache)
                and not any(map(given.get, _MORE_OUTPUTS))
                and self.steps_agree
            ):
                # Before transformers looks whether the cache is static: it would make the mask
                # four-dimensional then.
                length = int(cache.get_seq_length())
                mask = given.get("attention_mask")
                seen = mask[:, :length] if mask is not None and mask.dim() == 2 else None
                runtime.adopt(cache, input_ids.shape[0], input_ids.shape[1], seen)
            return prepare(input_ids, **given)

        caching = model._prepare_cache_for_generation

        def cached(config: Any, model_kwargs: Any, mode: Any, batch: int, length: int) -> Any:
            runtime.expected = int(length)
            # Candidates of an assistant are judged by all their rows.
            runtime.last_row_only = mode in _ONE_ROW
            return caching(config, model_kwargs, mode, batch, length)

        stand_in.__dict__.update(
            forward=forward,
            prepare_inputs_for_generation=prepared,
            _prepare_cache_for_generation=cached,
        )
        if self._pair and self._part is not None:
            stand_in.__dict__["get_encoder"] = self._compiled_encoder
        before = runtime.last_row_only, runtime.expected, runtime.looping
        runtime.looping = True
        try:
            return (loop or type(stand_in).generate)(stand_in, *args, **kwargs)
        finally:
            runtime.last_row_only, runtime.expected, runtime.looping = before

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
