"""One decoder step of an encoder-decoder: the encoder's keys and values are state as well.

The first step computes them from the encoder's result and fills their cache; later steps read it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from temper.frontdoor.language.attention import CapturedStep, attending
from temper.frontdoor.language.step import CROSS, CacheLayer, LayerShape, add_cache, only_row
from temper.graph import cache_ops


class _CrossLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of the encoder's result in one layer."""

    def __init__(self, owner: Seq2SeqStep, index: int) -> None:
        self._owner, self._index = owner, index
        self.is_initialized = owner.decode

    @property
    def keys(self) -> torch.Tensor:  # type: ignore[override]
        return self._buffer("keys")

    @property
    def values(self) -> torch.Tensor:  # type: ignore[override]
        return self._buffer("values")

    def _buffer(self, name: str) -> torch.Tensor:
        found: torch.Tensor = getattr(self._owner.cache, f"{CROSS}{name}_{self._index}")
        return found

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        pass

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        for name, new in (("keys", key_states), ("values", value_states)):
            buffer = made = self._buffer(name)
            for user in range(buffer.shape[0]):
                made = cache_ops.fill_cache(made, new[user : user + 1], user)
            buffer.copy_(made)
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._owner.source, 0

    def get_seq_length(self) -> int:
        return self._owner.source if self._owner.decode else 0

    def get_max_length(self) -> int:
        return self._owner.source


class Seq2SeqStep(torch.nn.Module):
    """A decoder with its caches; ``forward`` is one step of ``users`` users.

    Inputs: decoder ids (users, length); ``place`` (users), the slot of a token or a prompt's last
    row; the mask of the encoder's result, additive (users, 1, 1, source); and for the first step
    the encoder's result itself.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        layers: Sequence[LayerShape],
        *,
        users: int,
        length: int,
        source: int,
        decode: bool,
        every_row: bool = False,
    ) -> None:
        super().__init__()
        self.net = model
        self.length, self.source, self.decode = length, source, decode
        self.every_row = every_row or decode
        self.cache = torch.nn.Module()
        self.dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
        add_cache(self.cache, layers, users, length, self.dtype)
        add_cache(self.cache, layers, users, source, self.dtype, CROSS)
        self.layer_count = len(layers)
        self.train(model.training)

    def forward(
        self,
        ids: torch.Tensor,
        place: torch.Tensor,
        mask: torch.Tensor,
        encoded: torch.Tensor | None = None,
    ) -> torch.Tensor:
        step = CapturedStep(slots=place if self.decode else None)
        own = Cache(layers=[CacheLayer(self, i, step) for i in range(self.layer_count)])
        cross = Cache(layers=[_CrossLayer(self, i) for i in range(self.layer_count)])
        if encoded is None:  # the caches hold what is needed of it
            config: Any = self.net.config
            shape = (ids.shape[0], self.source, int(config.hidden_size))
            encoded = torch.zeros(shape, dtype=self.dtype)
        with contextlib.ExitStack() as stack:
            stack.enter_context(attending(self.net, step, named=True))
            if not self.every_row:
                stack.enter_context(only_row(self.net, place))
            out = self.net(
                decoder_input_ids=ids,
                decoder_attention_mask=torch.ones_like(ids),
                attention_mask=mask,
                encoder_outputs=BaseModelOutput(cast(torch.FloatTensor, encoded)),
                past_key_values=EncoderDecoderCache(own, cross),
                use_cache=True,
                return_dict=True,
            )
        logits: torch.Tensor = out.logits
        return logits if self.every_row else logits[:, -1]


def decoder_shapes(model: torch.nn.Module, width: int) -> tuple[list[LayerShape], bool]:
    """What each decoder layer keeps of its own text (of the encoder's it keeps as much), and
    whether the model heeds a mask of the encoder's result, so that this may be padded."""
    step = CapturedStep()
    cache: Any = EncoderDecoderCache(DynamicCache(), DynamicCache())
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        torch.no_grad(),
        attending(model, step, named=True),
    ):
        encoded = torch.zeros(1, _ENCODED, width, dtype=dtype)
        model(
            decoder_input_ids=torch.zeros(1, 2, dtype=torch.long),
            decoder_attention_mask=torch.ones(1, 2, dtype=torch.long),
            encoder_outputs=BaseModelOutput(cast(torch.FloatTensor, encoded)),
            attention_mask=torch.zeros(1, 1, 1, _ENCODED, dtype=dtype),
            past_key_values=cache,
            use_cache=True,
        )
    layers = cache.self_attention_cache.layers
    heeds = [masked for keys, masked in step.masked if keys == _ENCODED]
    return [
        LayerShape(int(x.keys.shape[1]), int(x.keys.shape[-1]), int(x.values.shape[-1]))
        for x in layers
    ], bool(heeds) and all(heeds)


_ENCODED = 3  # another length than the decoder's, to tell its keys from the encoder's
