"""Decoder calls of an encoder-decoder on the chip: the first one, and one for every token."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, StaticLayer
from transformers.modeling_outputs import Seq2SeqLMOutput

from temper.capture.capture import capture
from temper.compiler.pipeline import Built, build
from temper.errors import UsageError
from temper.frontdoor.language.conversation import Conversation, attach, conversation_of
from temper.frontdoor.language.programs import bucket, named_by_model
from temper.frontdoor.language.runner import StepRunner
from temper.frontdoor.language.seq2seq_step import Seq2SeqStep, decoder_shapes
from temper.frontdoor.language.step import STATE, LayerShape


@dataclass(frozen=True)
class _Kind:
    users: int
    capacity: int
    source: int
    rows: int = 0  # 0: a token
    every_row: bool = False


class Seq2SeqRuntime(StepRunner):
    """First and later decoder programs of one model."""

    _layers: list[LayerShape] | None = None
    _padded = False  # whether the encoder's result may be padded behind a mask

    def __call__(
        self,
        decoder_input_ids: torch.Tensor,
        encoder_outputs: Any,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Any = None,
        return_dict: bool | None = None,
    ) -> Any:
        """One forward call as transformers makes it, with a cache."""
        with self._lock, torch.no_grad():
            cache = past_key_values
            if cache is None:
                cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
            users, length = decoder_input_ids.shape
            encoded = encoder_outputs[0]
            text = self._adopt(cache, users, encoded, length)
            if text.total + length > text.capacity:
                if text.fixed:
                    raise UsageError(f"the cache holds {text.limit} tokens")
                text.grow(self.slots(users, self.capacity(text.total + length)))
            mask = _additive(attention_mask, encoded, text.source)
            if text.total == 0:
                logits = self._first(text, decoder_input_ids, mask, encoded)
            else:
                logits = torch.cat(
                    [self._token(text, decoder_input_ids[:, i : i + 1], mask)
                     for i in range(length)], dim=1,
                )  # fmt: skip
        if return_dict is False:
            return logits, cache
        return Seq2SeqLMOutput(
            logits=cast(torch.FloatTensor, logits),
            past_key_values=cache,
            encoder_last_hidden_state=encoded,
        )

    def _adopt(self, cache: Any, users: int, encoded: torch.Tensor, length: int) -> Conversation:
        own = cache.self_attention_cache
        found = conversation_of(own)
        if found is not None:
            return found
        if int(own.get_seq_length()):
            raise UsageError("a cache that eager torch has filled cannot be continued here")
        if self._layers is None:
            self._layers, self._padded = decoder_shapes(self.model, encoded.shape[-1])
        static = bool(own.layers) and all(isinstance(x, StaticLayer) for x in own.layers)
        asked = max(x.max_cache_len for x in own.layers) if static else self.capacity(length)
        source = bucket(encoded.shape[1], 1 << 30) if self._padded else encoded.shape[1]
        made = Conversation(self._layers, users, self.slots(users, asked), self.dtype,
                            fixed=static, source=source)  # fmt: skip
        made.limit = asked if static else made.capacity
        made.source_length = encoded.shape[1]
        attach(own, made)
        attach(cache.cross_attention_cache, made, cross=True)
        cache.is_updated = dict.fromkeys(range(len(self._layers)), True)
        return made

    def _first(
        self, text: Conversation, ids: torch.Tensor, mask: torch.Tensor, encoded: torch.Tensor
    ) -> torch.Tensor:
        users, length = ids.shape
        rows = bucket(length, text.capacity)
        only_last = self.last_row_only
        kind = _Kind(users, text.capacity, text.source, rows, not only_last)
        packed = torch.zeros(users, rows, dtype=torch.long)
        packed[:, :length] = ids
        last = torch.full((users,), length - 1, dtype=torch.int32)
        whole = torch.zeros(users, text.source, encoded.shape[-1], dtype=encoded.dtype)
        whole[:, : encoded.shape[1]] = encoded
        inputs = (packed, last, mask, whole)
        made = self.run(kind, text, lambda: self._build(kind, inputs), *inputs)
        text.seen = torch.ones(users, length, dtype=torch.bool)
        return made[:, None] if only_last else made[:, :length]

    def _token(self, text: Conversation, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        slots = torch.full((text.users,), text.total, dtype=torch.int32)
        kind = _Kind(text.users, text.capacity, text.source)
        inputs = (ids, slots, mask)
        made = self.run(kind, text, lambda: self._build(kind, inputs), *inputs)
        text.seen = torch.ones(text.users, text.total + 1, dtype=torch.bool)
        return made

    def _build(self, kind: _Kind, inputs: tuple[torch.Tensor, ...]) -> Built:
        assert self._layers is not None
        started = time.perf_counter()
        step = Seq2SeqStep(
            self.model, self._layers, users=kind.users, length=kind.capacity, source=kind.source,
            decode=not kind.rows, every_row=kind.every_row,
        )  # fmt: skip
        captured = capture(step, inputs, state=STATE)
        name = f"first{kind.rows}" if kind.rows else "decode"
        captured.name = f"{type(self.model).__name__}_{name}"
        named_by_model(captured)
        built = build(captured, self.options, cached=True)
        rest = time.perf_counter() - started - sum(built.stages.values())
        built.stages = {"capture": rest, **built.stages}
        return built


def _additive(mask: torch.Tensor | None, encoded: torch.Tensor, source: int) -> torch.Tensor:
    """The mask of the encoder's result with its padding, as attention adds it."""
    users, length = encoded.shape[:2]
    open_ = torch.zeros(users, source, dtype=torch.bool)
    open_[:, :length] = True if mask is None or mask.shape[1] != length else mask.bool()
    made = torch.zeros(users, 1, 1, source, dtype=encoded.dtype)
    return made.masked_fill(~open_[:, None, None], torch.finfo(encoded.dtype).min)
