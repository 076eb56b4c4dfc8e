"""Programs of steps over device memory that conversations share, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from temper import clock
from temper.compiler.pipeline import Built
from temper.frontdoor.language.conversation import Conversation, Store
from temper.frontdoor.language.entry import StepEntry
from temper.frontdoor.loaded import LoadedGraph
from temper.options import Options


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

    def _place(self, conversation: Conversation) -> Store:
        """Bring a conversation to the device; the one that was there is kept by the host."""
        key = conversation.key
        current = self._on_device.get(key)
        if current is conversation:
            return self._stores[key]
        store = self._stores.get(key)
        if store is None:
            store = self._stores[key] = conversation.store
        else:
            if current is not None:
                current.held = {path: tensor.clone() for path, tensor in store.items()}
                current.live = None
            for path, tensor in conversation.store.items():
                store[path].copy_(tensor)
        conversation.live, conversation.held = store, None
        self._on_device[key] = conversation
        return store

    def capacity(self, length: int) -> int:
        """Slots of a cache that may grow: what was asked for, or a comfortable next size."""
        if self.options["max_context"]:
            return max(int(self.options["max_context"]), length)
        if self.expected >= length:
            return self.expected
        limit = getattr(self.config, "max_position_embeddings", None) or 1 << 30
        return max(length, min(limit, max(128, 1 << (2 * length - 1).bit_length())))
