"""One step of a generative model as a module that capture can take: a prompt, or a token a user.

The step owns the cache as buffers. A prompt fills it and attends to itself; a token is written at
its user's slot and attends to the cache. Users of a decode step are the rows of one sequence,
(1, users, D), as the chip wants them: thirty-two of them are one row of tiles, not thirty-two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from temper.frontdoor.language.attention import CapturedStep, attending
from temper.frontdoor.language.rotary import call_angles, tables
from temper.frontdoor.language.unwritten import unwritten
from temper.graph import cache_ops
from temper.program.tensor import TILE

NET = "net"  # where the model hangs in a step; its parameters' paths start with this
STATE = "cache"  # and where the cache does
CROSS = "cross_"  # names of what is kept of an encoder's result


@dataclass(frozen=True)
class LayerShape:
    """Heads and depths of one layer's cache."""

    heads: int
    key_depth: int
    value_depth: int


class CacheLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer of the cache while a step is captured: it writes, and hands out what to attend."""

    is_sliding = False

    def __init__(self, owner: Any, index: int, step: CapturedStep) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._owner, self._index, self._step = owner, index, step
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        pass

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        held = [self._write("keys", key_states), self._write("values", value_states)]
        if self._step.slots is None:  # a prompt attends to itself, not to the cache
            held = [key_states, value_states]
        self._step.served.append(held[0])
        return held[0], held[1]

    def _write(self, name: str, new: torch.Tensor) -> torch.Tensor:
        buffer: torch.Tensor = getattr(self._owner.cache, f"{name}_{self._index}")
        made = buffer
        if self._step.slots is not None:
            rows = new.transpose(1, 2) if self._step.rows else new.permute(2, 0, 1, 3)
            made = cache_ops.update_cache(made, rows.contiguous(), self._step.slots)
        else:
            for user in range(buffer.shape[0]):
                made = cache_ops.fill_cache(made, new[user : user + 1], user)
        buffer.copy_(made)
        return made

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        decoding = self._step.slots is not None
        return (self._owner.length if decoding else query_length), 0

    def get_seq_length(self) -> Any:
        if self._step.slots is None or self._step.rows:
            return 0
        if not self._step.alone:  # a decoder counts its places by this; all users stand at one
            return self._step.slots[0]
        # Users stand at different slots: a model that masks by itself must hide nothing, the mask
        # that it is given hides what lies behind each of them.
        return int(self._owner.length) - 1

    def get_max_length(self) -> int:
        return int(self._owner.length)


class LanguageStep(torch.nn.Module):
    """A model with its cache; ``forward`` is one step of ``users`` users.

    Inputs: token ids and position ids, (users, length) for a prompt and (1, users) for a token
    (one row of positions does for all users of a prompt who stand at the same ones);
    ``slots`` (users) say where in the cache a token goes, and ``last`` (users) which row of a
    prompt is a user's last; ``angles`` are the rotary ones of the call where it must look at all of
    its positions. The result is the logits of that row, or of every row; with
    ``choose`` it is the likeliest token, picked on the chip.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        layers: Sequence[LayerShape],
        *,
        users: int,
        length: int,
        decode: bool,
        named: bool = True,
        every_row: bool = False,
        choose: bool = False,
    ) -> None:
        super().__init__()
        self.net = model
        self.length, self.decode, self.named = length, decode, named
        self.rows = named and decode
        self.every_row = every_row or decode
        self.choose = choose
        self.cache = torch.nn.Module()
        dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
        add_cache(self.cache, layers, users, length, dtype)
        self.layer_count = len(layers)
        self.train(model.training)

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        place: torch.Tensor,
        *angles: torch.Tensor,
    ) -> torch.Tensor:
        slots = place if self.decode else None
        step = CapturedStep(slots=slots, rows=self.rows, alone=True, angles=angles)
        cache = Cache(layers=[CacheLayer(self, i, step) for i in range(self.layer_count)])
        with contextlib.ExitStack() as stack:
            stack.enter_context(attending(self.net, step, named=self.named))
            if not self.every_row:
                stack.enter_context(only_row(self.net, place))
            mask = self._mask(place) if self.decode and not self.rows else None
            out = self.net(
                input_ids=input_ids,
                position_ids=position_ids,
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
                return_dict=True,
            )
        logits: torch.Tensor = out.logits
        made = logits[0] if self.rows else logits[:, -1] if not self.every_row else logits
        return made.argmax(-1) if self.choose else made

    def _mask(self, place: torch.Tensor) -> torch.Tensor:
        """What each user's token sees, as a model with an attention of its own takes it."""
        open_ = torch.arange(self.length) <= place[:, None]
        config: Any = self.net.config
        if config.model_type in _COUNTS_PLACES or getattr(config, "alibi", False):
            return open_.long()
        dtype = next(iter(self.cache.buffers())).dtype
        shown = torch.zeros_like(open_, dtype=dtype).masked_fill(~open_, torch.finfo(dtype).min)
        return shown[:, None, None]


# Models that count places (for their slopes) by a mask of two dimensions.
_COUNTS_PLACES = frozenset({"bloom"})


def add_cache(
    module: torch.nn.Module,
    layers: Sequence[LayerShape],
    users: int,
    length: int,
    dtype: torch.dtype,
    prefix: str = "",
) -> None:
    """Keys and values of every layer as buffers: shapes alone, the tensors live on the device."""
    for index, layer in enumerate(layers):
        for name, depth in (("keys", layer.key_depth), ("values", layer.value_depth)):
            shape = (users, layer.heads, length, depth)
            module.register_buffer(f"{prefix}{name}_{index}", unwritten(shape, dtype))


@contextlib.contextmanager
def only_row(model: torch.nn.Module, last: torch.Tensor) -> Iterator[None]:
    """The head reads each user's last row alone."""
    head = model.get_output_embeddings()  # type: ignore[operator]

    def pick(_: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        rows = args[0]
        return (rows[torch.arange(rows.shape[0]), last][:, None], *args[1:])

    handle = head.register_forward_pre_hook(pick)
    try:
        yield
    finally:
        handle.remove()


# Kinds of layers that steps know.
_LAYER_KINDS = frozenset({"full_attention", "sliding_attention"})


def other_layers(config: Any) -> list[str]:
    """Kinds of layers that keep something else than keys and values of attention."""
    return sorted(set(getattr(config, "layer_types", None) or ()) - _LAYER_KINDS)


def layer_shapes(model: torch.nn.Module, named: bool = True) -> list[LayerShape]:
    """What each layer of the model keeps in a cache, found with tensors that hold nothing."""
    cache: Any = DynamicCache()
    step = CapturedStep(alone=True)
    ids = torch.zeros(1, 2, dtype=torch.long)
    step.angles = call_angles(model, ids)
    with (
        tables(model, TILE),
        FakeTensorMode(allow_non_fake_inputs=True),
        torch.no_grad(),
        attending(model, step, named=named),
    ):
        model(input_ids=ids, position_ids=ids, past_key_values=cache, use_cache=True)
    return [
        LayerShape(int(k.shape[1]), int(k.shape[-1]), int(v.shape[-1]))
        for k, v in ((layer.keys, layer.values) for layer in cache.layers)
    ]
