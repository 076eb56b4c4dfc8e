"""Calls of a generative model on the chip: a prompt, a token, or several tokens one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, cast

import torch
from transformers.cache_utils import Cache, DynamicCache, StaticLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

from temper.compiler.pipeline import Built
from temper.errors import UsageError
from temper.frontdoor.language.checked import agrees, step_error
from temper.frontdoor.language.conversation import Conversation, attach, conversation_of
from temper.frontdoor.language.programs import StepKind, bucket, build_step
from temper.frontdoor.language.rotary import call_angles, looks_at_calls
from temper.frontdoor.language.runner import StepRunner
from temper.frontdoor.language.step import LayerShape, layer_shapes, other_layers
from temper.frontdoor.loaded import LoadedGraph
from temper.options import Options


class LanguageRuntime(StepRunner):
    """Prefill and decode programs of one decoder-only model."""

    def __init__(
        self,
        model: torch.nn.Module,
        options: Options,
        keep: Callable[[LoadedGraph], Any] | None = None,
    ) -> None:
        super().__init__(model, options, keep)
        self._layers: list[LayerShape] | None = None
        self.named = _attends_by_name(model)

    @property
    def layers(self) -> list[LayerShape]:
        """What each layer keeps in a cache."""
        if self._layers is None:
            self._layers = layer_shapes(self.model, self.named)
        return self._layers

    def _run(self, kind: StepKind, text: Conversation, *inputs: torch.Tensor) -> torch.Tensor:
        def build() -> Built:
            return build_step(self.model, self.layers, kind, self.options, self.named)

        angles = call_angles(self.model, inputs[1]) if self._angles_vary else ()
        return self.run(kind, text, build, *inputs, *angles)

    @cached_property
    def _angles_vary(self) -> bool:
        return looks_at_calls(self.model)

    # --- caches -----------------------------------------------------------------------------

    def unfit(self) -> str:
        """Why steps would not give what the model gives, or nothing where they do."""
        kinds = other_layers(self.config)
        if kinds:
            return f"layers of kind {', '.join(kinds)}"
        try:
            limit = getattr(self.config, "max_position_embeddings", None) or _TRIAL
            limit = getattr(self.config, "max_seq_len", limit)
            error = step_error(self.model, self.layers, min(_TRIAL, limit), self.named)
        except Exception as failure:  # the model's own code, with our cache
            first = (str(failure).splitlines() or [type(failure).__name__])[0]
            return f"its code does not run in steps ({first[:120]})"
        return "" if agrees(error) else f"steps differ from it by {error:.0%} in a trial"

    def adopt(
        self, cache: Any, users: int, length: int, seen: torch.Tensor | None = None
    ) -> Conversation:
        """The conversation of a cache object; one that eager torch made is taken over.

        ``seen`` says which of the tokens that it holds are not padding.
        """
        found = conversation_of(cache)
        if found is not None:
            return found
        # A static window drops what left it; only layers that keep everything set a limit.
        whole = [x for x in cache.layers if not getattr(x, "is_sliding", False)]
        static = bool(whole) and all(isinstance(x, StaticLayer) for x in whole)
        asked = max(x.max_cache_len for x in whole) if static else self.capacity(length)
        made = Conversation(self.layers, users, self.slots(users, asked), self.dtype, fixed=static)
        made.limit = asked if static else made.capacity
        filled = int(cache.get_seq_length())
        if filled:
            held = cache.layers
            if any(getattr(layer, "is_sliding", False) for layer in held) and any(
                layer.keys.shape[2] < filled for layer in held
            ):
                raise UsageError(
                    "a cache whose window has dropped tokens cannot be taken to the device",
                    try_=["start with a new cache", "generate the prompt on the device too"],
                )
            if seen is None:
                seen = torch.ones(users, filled, dtype=torch.bool)
            made.load([x.keys for x in held], [x.values for x in held], seen)
        attach(cache, made)
        return made

    # --- calls ------------------------------------------------------------------------------

    def __call__(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        return_dict: bool | None = None,
    ) -> Any:
        """One forward call as transformers makes it, with a cache."""
        with self._lock, torch.no_grad():
            users, length = input_ids.shape
            cache = DynamicCache() if past_key_values is None else past_key_values
            before = int(cache.get_seq_length())
            earlier = attention_mask[:, :before] if attention_mask is not None else None
            text = self.adopt(cache, users, before + length, earlier)
            if text.users != users:
                raise UsageError(f"the cache holds {text.users} users, the call has {users}")
            real = _real_tokens(text, attention_mask, length)
            self._make_room(text, real)
            places = self._positions(text, real, position_ids, length)
            only_last = self.last_row_only or (
                isinstance(logits_to_keep, int) and logits_to_keep == 1
            )
            if text.total == 0 and length > 1:
                logits = self._prefill(text, input_ids, places, real, only_last)
            elif self._reads_again(text, real):
                ids, places = (
                    torch.cat(pair, dim=1)
                    for pair in zip(text.read_ids, (input_ids, places), strict=True)
                )
                real = torch.cat([text.seen, real], dim=1)
                text.cut(0)
                logits = self._prefill(text, ids, places, real, only_last)[:, -length:]
            else:
                logits = torch.stack(
                    [self._token(text, input_ids[:, i], places[:, i], real[:, i])
                     for i in range(length)], dim=1,
                )  # fmt: skip
            if not only_last:
                logits = _kept(logits, logits_to_keep)
            elif logits.shape[1] > 1:
                logits = logits[:, -1:]
        if return_dict is False:
            return logits, cache
        return CausalLMOutputWithPast(logits=cast(torch.FloatTensor, logits), past_key_values=cache)

    def _reads_again(self, text: Conversation, real: torch.Tensor) -> bool:
        """Whether the whole text as a prompt takes less time than the new tokens one by one.

        A token by itself waits for all weights, in whose time a prompt has many.
        """
        length = real.shape[1]
        if length < _FEW or not text.remembered or self._angles_vary or not self.named:
            return False
        whole = int((text.lengths + real.sum(dim=1)).max())
        return length * _PROMPT_TOKENS >= bucket(whole, text.capacity) * text.users

    def _make_room(self, text: Conversation, real: torch.Tensor) -> None:
        needed = int((text.lengths + real.sum(dim=1)).max())
        if text.total + real.shape[1] > text.limit and text.fixed:
            raise UsageError(
                f"the cache holds {text.limit} tokens, the text has {text.total + real.shape[1]}",
                try_=["a StaticCache with a larger max_cache_len", "a DynamicCache"],
            )
        if needed > text.capacity:
            text.grow(self.slots(text.users, self.capacity(needed)))

    def _positions(
        self, text: Conversation, real: torch.Tensor, given: torch.Tensor | None, length: int
    ) -> torch.Tensor:
        """Position ids (users, length): as given, or as the model would count them."""
        users = real.shape[0]
        if given is not None:
            return given.expand(users, length) if given.shape[0] == 1 else given
        if self.config.model_type in _COUNTS_REAL:
            seen = torch.cat([text.seen, real], dim=1)
            return (seen.cumsum(dim=1) - 1).clamp(min=0)[:, -length:]
        return (torch.arange(length) + text.total).expand(users, length)

    def _prefill(
        self,
        text: Conversation,
        ids: torch.Tensor,
        places: torch.Tensor,
        real: torch.Tensor,
        only_last: bool,
    ) -> torch.Tensor:
        users, length = ids.shape
        lengths = real.sum(dim=1)
        rows = bucket(max(1, int(lengths.max())), text.capacity)
        packed, packed_places = torch.zeros(2, users, rows, dtype=torch.long)
        for user in range(users):
            packed[user, : lengths[user]] = ids[user, real[user]]
            packed_places[user, : lengths[user]] = places[user, real[user]]
        self._check_places(packed_places, text)
        last = (lengths - 1).clamp(min=0).to(torch.int32)
        longest = packed_places[int(lengths.argmax())]
        here = torch.arange(rows) < lengths[:, None]
        apart = bool(((packed_places != longest) & here).any())
        if not apart:
            packed_places = longest[None]
        kind = StepKind(users, text.capacity, rows, not only_last, apart=apart)
        made = self._run(kind, text, packed, packed_places, last)
        text.append(ids, places, real)
        if only_last:
            return made[:, None]
        logits = torch.zeros(users, length, made.shape[-1], dtype=made.dtype)
        for user in range(users):
            logits[user, real[user]] = made[user, : lengths[user]]
        return logits

    def _token(
        self, text: Conversation, ids: torch.Tensor, places: torch.Tensor, real: torch.Tensor
    ) -> torch.Tensor:
        """One token for each user; where there is none, the user stays idle."""
        slots = torch.where(real, text.lengths, -1).to(torch.int32)
        self._check_places(places, text)
        shape = (1, -1) if self.named else (-1, 1)
        kind = StepKind(text.users, text.capacity)
        made = self._run(kind, text, ids.view(shape), places.reshape(shape), slots)
        text.append(ids[:, None], places[:, None], real[:, None])
        return made if self.named else made[:, -1]

    def _check_places(self, places: torch.Tensor, text: Conversation) -> None:
        if int(places.max()) >= text.capacity:
            raise UsageError(
                f"position {int(places.max())} lies beyond the cache of {text.capacity} tokens",
                try_=[f"max_context={int(places.max()) + 1}"],
            )


# Slots of the cache in which a few tokens are tried.
_TRIAL = 512
# Fewer new tokens than this are read one by one (candidates of an assistant).
_FEW = 8
# Tokens of a prompt in the time of one token: 8B on n150, 128 tokens 71 ms, one 39 ms (modelled).
_PROMPT_TOKENS = 64
# Models that count positions by the attention mask when a call gives none.
_COUNTS_REAL = frozenset({"opt", "biogpt", "xglm"})


def _real_tokens(text: Conversation, mask: torch.Tensor | None, length: int) -> torch.Tensor:
    """Which of the new tokens are not padding; what the mask says of older ones must not change."""
    if mask is None:
        return torch.ones(text.users, length, dtype=torch.bool)
    mask = mask.bool()
    if mask.shape[1] == length and (text.total == 0 or bool(mask.all())):
        return mask
    old = mask[:, :-length]
    if old.shape != text.seen.shape or not torch.equal(old, text.seen):
        raise UsageError(
            "the attention mask says something else of earlier tokens than when they were read",
            try_=["the same mask with the new tokens appended", "a new cache"],
        )
    return mask[:, -length:]


def _kept(logits: torch.Tensor, keep: int | torch.Tensor) -> torch.Tensor:
    if isinstance(keep, int):
        return logits[:, -keep:] if keep else logits
    return logits[:, keep]


def _attends_by_name(model: torch.nn.Module) -> bool:
    """Whether the model asks its config for the attention function, and not a class of its own."""
    flag = getattr(model, "_supports_attention_backend", None)
    return bool(flag)
