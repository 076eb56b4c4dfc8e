"""Programs of steps over device memory that conversations share, one at a time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from temper import clock
from temper.compiler.pipeline import Built
from temper.frontdoor.language.conversation import Conversation
from temper.frontdoor.language.entry import StepEntry
from temper.frontdoor.language.programs import rounded_capacity
from temper.frontdoor.language.reorder import build_reorder, order_rows
from temper.frontdoor.loaded import LoadedGraph
from temper.options import Options
from temper.targets.protocol import State as Store

# A cache takes slots that are compiled for where they are at most so many times what it needs.
_SHARED = 4
# Sizes of short caches: powers of two from the first number to the second.
_FEWEST, _FINE = 128, 512


@dataclass(frozen=True)
class _Reorder:
    users: int
    capacity: int
    source: int


class StepRunner:
    """Compiles each kind of step once; caches of the callers take turns on the device."""

    def __init__(
        self,
        model: torch.nn.Module,
        options: Options,
        keep: Callable[[LoadedGraph], Any] | None = None,
    ) -> None:
        self.model, self.options, self._keep = model, options, keep
        self.config: Any = model.config
        self._entries: dict[Any, StepEntry] = {}
        self._stores: dict[Any, Store] = {}  # device memory, by users and slots
        self._on_device: dict[Any, Conversation] = {}
        self._lock = threading.RLock()
        self.expected = 0  # length that the caller says a text will reach
        self.looping = False  # the caller is the loop of generate
        self.last_row_only = False  # the caller reads nothing but the last row's logits

    @property
    def compiles(self) -> int:
        """How many kinds of steps were compiled so far."""
        return len(self._entries)

    @property
    def dtype(self) -> torch.dtype:
        return next(p.dtype for p in self.model.parameters() if p.is_floating_point())

    def run(
        self,
        kind: Any,
        conversation: Conversation,
        build: Callable[[], Built],
        *inputs: torch.Tensor,
    ) -> torch.Tensor:
        """One step of a conversation; ``build`` makes its program at the first one of its kind."""
        entry = self._entries.get(kind)
        if entry is None or entry.stale():
            with clock.compiling:
                built = build()
            graph = LoadedGraph(built, len(self._entries), self._place(conversation))
            if self._keep is not None:
                self._keep(graph)
            entry = self._entries[kind] = StepEntry(graph, self.model)
        self._place(conversation)
        return entry(*inputs)

    def reorder(self, conversation: Conversation, order: torch.Tensor) -> None:
        """Other users in the place of these, as many, by a program over the cache."""
        store = self._place(conversation)
        shapes = {path: store.on_host(path).shape for path in store}
        name = type(self.model).__name__

        def made() -> Built:
            return build_reorder(shapes, self.dtype, self.options, name)

        kind = _Reorder(conversation.users, conversation.capacity, conversation.source)
        with self._lock, torch.no_grad():
            self.run(kind, conversation, made, *order_rows(shapes, order))

    def _place(self, conversation: Conversation) -> Store:
        """Bring a conversation to the device; the one that was there is kept by the host."""
        key = conversation.key
        store = self._stores.get(key)
        if store is not None and conversation.live is store:
            return store
        current = self._on_device.get(key)
        if current is not None and current.live is not store:
            current = None  # it has grown or changed its users since, and lies elsewhere
        if store is None:
            store = self._stores[key] = conversation.store
        else:
            if current is not None:
                current.held = Store((path, tensor.clone()) for path, tensor in store.items())
                current.live = None
            for path, tensor in conversation.store.items():
                store[path].copy_(tensor)
        conversation.live, conversation.held = store, None
        conversation.reorder = functools.partial(self.reorder, conversation)
        self._on_device[key] = conversation
        return store

    def slots(self, users: int, length: int) -> int:
        """Slots of a cache for a text of this length.

        Those that programs were compiled for where they are not much more; else a size that texts
        of many lengths share, so that not every ``max_length`` compiles anew.
        """
        least = rounded_capacity(length)
        made = {kind.capacity for kind in self._entries if kind.users == users}
        fitting = [size for size in made if least <= size <= _SHARED * least]
        limit = max(length, getattr(self.config, "max_seq_len", self._places))
        shared = least if least > _FINE else max(_FEWEST, 1 << (least - 1).bit_length())
        return min(fitting, default=max(least, min(shared, rounded_capacity(limit))))

    @property
    def _places(self) -> int:
        return getattr(self.config, "max_position_embeddings", None) or 1 << 30

    def capacity(self, length: int) -> int:
        """Tokens of a cache that may grow: what was asked for, or a comfortable next size."""
        if self.options["max_context"]:
            return max(int(self.options["max_context"]), length)
        if self.expected >= length:
            return self.expected
        return max(length, min(self._places, max(_FEWEST, 1 << (2 * length - 1).bit_length())))
