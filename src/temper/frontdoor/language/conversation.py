"""A cache of the user, held on the device: which slots its users have filled, and the way back.

The user's Cache object stays what it is to transformers; its layers are replaced by ones that
know how long the text is and read keys and values back when somebody looks. Padding is not stored:
each user's tokens lie at slots 0, 1, 2, ..., so that a position is all that attention needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer

from temper.errors import UsageError
from temper.frontdoor.language.step import CROSS, STATE, LayerShape
from temper.targets.protocol import State as Store


class Conversation:
    """The texts of some users in one cache; ``seen`` marks which of their tokens were real."""

    def __init__(
        self,
        layers: Sequence[LayerShape],
        users: int,
        capacity: int,
        dtype: torch.dtype,
        *,
        fixed: bool,
        source: int = 0,
    ) -> None:
        self.layers, self.users, self.capacity, self.dtype = list(layers), users, capacity, dtype
        self.fixed = fixed  # a static cache: it must not grow
        self.source = self.source_length = source  # slots of an encoder's result, and those filled
        self.limit = capacity  # what the user asked for, before it was rounded up
        self.seen = torch.zeros(users, 0, dtype=torch.bool)
        self.read_ids = torch.zeros(2, users, 0, dtype=torch.long)  # tokens and their positions
        self.held: Store | None = None  # contents while another conversation is on the device
        self.live: Store | None = None  # the device's own tensors while this one is
        self.reorder: Callable[[torch.Tensor], None] | None = None  # on the device, while live

    @property
    def lengths(self) -> torch.Tensor:
        """How many slots each user has filled."""
        return self.seen.sum(dim=1)

    @property
    def total(self) -> int:
        """Length of the text with its padding, as transformers counts it."""
        return int(self.seen.shape[1])

    @property
    def remembered(self) -> bool:
        """Whether all tokens of the text are known, not their keys and values alone."""
        return self.read_ids.shape[1:] == self.seen.shape

    def append(self, ids: torch.Tensor, places: torch.Tensor, real: torch.Tensor) -> None:
        """More tokens were read, (users, length) each."""
        if self.remembered:
            self.read_ids = torch.cat([self.read_ids, torch.stack([ids, places])], dim=2)
        self.seen = torch.cat([self.seen, real], dim=1)

    def cut(self, length: int) -> None:
        """Only the first tokens stay."""
        if self.remembered:
            self.read_ids = self.read_ids[:, :, :length]
        self.seen = self.seen[:, :length]

    @property
    def store(self) -> Store:
        """The keys and values, wherever they are now; made when first asked for."""
        if self.live is not None:
            return self.live
        if self.held is None:
            self.held = self.empty(self.users, self.capacity)
        return self.held

    @property
    def key(self) -> tuple[int, int, int]:
        """Conversations of one key fit into the same device memory."""
        return self.users, self.capacity, self.source

    def empty(self, users: int, capacity: int) -> Store:
        """Zeros for all keys and values, of the text and of an encoder's result."""
        sizes = [("", capacity), *([(CROSS, self.source)] if self.source else [])]
        return Store(
            (f"{STATE}.{prefix}{name}_{index}", torch.zeros(users, layer.heads, slots, depth))
            for prefix, slots in sizes
            for index, layer in enumerate(self.layers)
            for name, depth in (("keys", layer.key_depth), ("values", layer.value_depth))
        )

    def read(self, name: str, index: int) -> torch.Tensor | None:
        """Keys or values of a layer in the user's layout, padding as zeros."""
        if not self.total:
            return None
        source = self.store[f"{STATE}.{name}_{index}"]
        made = torch.zeros(
            self.users, source.shape[1], self.limit if self.fixed else self.total, source.shape[3]
        )
        for user, length in enumerate(self.lengths.tolist()):
            made[user][:, : self.total][:, self.seen[user]] = source[user, :, :length]
        return made.to(self.dtype)

    def load(
        self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], seen: torch.Tensor
    ) -> None:
        """Take over a cache that eager torch has filled; padding is left behind."""
        self.seen = seen.bool()
        for name, tensors in (("keys", keys), ("values", values)):
            for index, tensor in enumerate(tensors):
                target = self.store[f"{STATE}.{name}_{index}"]
                for user, length in enumerate(self.lengths.tolist()):
                    real = tensor[user][:, : self.total][:, self.seen[user]]
                    target[user, :, :length] = real.float()

    def select(self, users: torch.Tensor) -> None:
        """Other users in the place of these: beams, repeats, a part of the batch."""
        if torch.equal(users, torch.arange(self.users)):
            return
        if len(users) == self.users and self.live is not None and self.reorder is not None:
            self.reorder(users)
            self._select_tokens(users)
            return
        store = Store((path, tensor[users]) for path, tensor in self.store.items())
        self._select_tokens(users)
        self.users, self.held, self.live = len(users), store, None

    def _select_tokens(self, users: torch.Tensor) -> None:
        if self.remembered:
            self.read_ids = self.read_ids[:, users]
        self.seen = self.seen[users]

    def grow(self, capacity: int) -> None:
        """More slots for everyone."""
        old = self.store
        self.held = self.empty(self.users, capacity)
        for path, tensor in self.held.items():
            tensor[:, :, : old[path].shape[2]] = old[path]
        self.live = None
        self.capacity = self.limit = capacity


class DeviceLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer of a user's cache whose keys and values lie on the device."""

    is_sliding = False
    is_croppable = True

    def __init__(self, conversation: Conversation, index: int) -> None:
        self._conversation, self._index = conversation, index
        self.is_initialized = True

    @property
    def keys(self) -> torch.Tensor | None:  # type: ignore[override]
        return self._conversation.read("keys", self._index)

    @property
    def values(self) -> torch.Tensor | None:  # type: ignore[override]
        return self._conversation.read("values", self._index)

    @property
    def batch_size(self) -> int:
        return self._conversation.users

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        pass

    def update(self, *args: Any, **kwargs: Any) -> Any:
        raise UsageError(
            "this cache lives on the device and cannot be continued by eager torch",
            try_=["the compiled model that filled it", "a new cache"],
        )

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._conversation.total + query_length, 0

    def get_seq_length(self) -> int:
        return self._conversation.total

    def get_max_length(self) -> int:
        return self._conversation.limit if self._conversation.fixed else -1

    # One layer does for all what transformers asks of each.

    def reset(self) -> None:
        self._conversation.cut(0)

    def crop(self, tokens_to_remove: int) -> None:
        if tokens_to_remove > 0:
            raise UsageError("crop takes a negative number: how many tokens to remove")
        if self._index == 0:
            self._conversation.cut(max(0, self._conversation.total + tokens_to_remove))

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        if self._index == 0:
            self._conversation.select(beam_idx.cpu())

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self._index == 0:
            users = torch.arange(self._conversation.users).repeat_interleave(repeats)
            self._conversation.select(users)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        if self._index == 0:
            self._conversation.select(torch.arange(self._conversation.users)[indices])


class EncodedLayer(DeviceLayer):  # type: ignore[no-untyped-call]
    """Keys and values of an encoder's result in one layer; they change with the text's users."""

    @property
    def keys(self) -> torch.Tensor:  # type: ignore[override]
        return self._read("keys")

    @property
    def values(self) -> torch.Tensor:  # type: ignore[override]
        return self._read("values")

    def _read(self, name: str) -> torch.Tensor:
        text = self._conversation
        found = text.store[f"{STATE}.{CROSS}{name}_{self._index}"]
        return found[:, :, : text.source_length].to(text.dtype)

    def get_seq_length(self) -> int:
        return self._conversation.source_length

    def crop(self, tokens_to_remove: int) -> None:
        pass

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        pass

    def batch_repeat_interleave(self, repeats: int) -> None:
        pass

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        pass


def conversation_of(cache: Any) -> Conversation | None:
    """The conversation that a cache object stands for, if it is on the device."""
    layers = getattr(cache, "layers", None)
    first = layers[0] if layers else None
    return first._conversation if isinstance(first, DeviceLayer) else None


def hand_back(cache: Any) -> None:
    """Give eager torch a cache that was on the device, with what it holds."""
    text = conversation_of(cache)
    if text is None:
        return
    held = [(layer.keys, layer.values) for layer in cache.layers]
    fresh = DynamicCache()
    for index, (keys, values) in enumerate(held):
        if keys is not None and values is not None:
            fresh.update(keys[:, :, : text.total], values[:, :, : text.total], index)
    cache.layer_class_to_replicate = DynamicLayer
    cache.layers = fresh.layers


def attach(cache: Cache, conversation: Conversation, *, cross: bool = False) -> None:
    """Let the user's cache object stand for the conversation, or for its encoder's result."""
    kind = EncodedLayer if cross else DeviceLayer
    cache.layer_class_to_replicate = None
    cache.layers = [kind(conversation, i) for i in range(len(conversation.layers))]
