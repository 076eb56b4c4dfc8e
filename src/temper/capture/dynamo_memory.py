"""What torch keeps of every compile for as long as the process lives, given back or bounded."""

from __future__ import annotations

import functools
import itertools
import linecache
import sys
import weakref
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar

from torch._dynamo import convert_frame
from torch._dynamo.guards import CheckFunctionManager, DeletedGuardManagerWrapper
from torch._dynamo.utils import get_metrics_context
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.graph_module import _loader

from temper.process import trim_heap

P = ParamSpec("P")
R = TypeVar("R")
Owner = TypeVar("Owner")
# Sources of generated code that stay readable in tracebacks.
_SOURCES = 128
# Results of ops on tensors without data that torch remembers, one for every shape and number.
_FAKE_RESULTS = 512
# Compiles between two trims of the heap. A compile leaves holes between what it keeps: 100
# recompiles left 0.7 MB in use and 8 MB more of pages that held nothing.
_TRIM_EVERY = 32
_compiles = itertools.count(1)


def forget_old_compiles() -> None:
    """Drop the oldest sources that torch.fx keeps, and torch's memory of fake tensors when full."""
    for key in list(_loader.eval_cache)[:-_SOURCES]:
        _loader.eval_cache.pop(key, None)
        linecache.cache.pop(key, None)
    if len(FakeTensorMode.cache) > _FAKE_RESULTS:
        FakeTensorMode.cache_clear()
    if next(_compiles) % _TRIM_EVERY == 0:
        trim_heap()
    get_metrics_context()._edits.clear()  # a stack for every measure of every compile


def in_own_context(compile_: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Compile where context variables end with the call: each change of torch's settings during a
    compile makes one more of them, which the thread would keep."""
    return copy_context().run(compile_, *args, **kwargs)


def when_gone(owner: Owner, act: Callable[[Owner], None]) -> Callable[[object], None]:
    """A callback of weak references that acts on ``owner`` while that lives and Python runs."""
    held, ending = weakref.ref(owner), sys.is_finalizing

    def gone(_: object) -> None:
        found = held()
        if found is not None and not ending():
            act(found)

    return gone


# In the place of the guards of every variant that was dropped.
DROPPED = DeletedGuardManagerWrapper("not used for long, or what it was compiled for is gone")
_WATCHED = "_tt_watched"


def hold_guards_weakly() -> None:
    """A variant ends with an object that it was compiled for; Dynamo notes so in finalisers that
    keep its guards, and the stacks in them, until that object dies: for a model's weights long
    after the variant was dropped. Weak references that lie with the guards do the same."""
    made = CheckFunctionManager.__init__

    @functools.wraps(made)
    def init(self: CheckFunctionManager, *args: Any, **kwargs: Any) -> None:
        watched: dict[int, object] = {}
        self.__dict__[_WATCHED] = watched
        made(self, *args, **kwargs)
        del self.__dict__[_WATCHED]
        gone = when_gone(self.guard_manager, drop_variant)
        references = [weakref.ref(value, gone) for value in watched.values()]
        self.guard_manager.__dict__[_WATCHED] = references

    def id_ref(self: CheckFunctionManager, value: object, name: str) -> int:
        try:
            self._weakrefs.setdefault(id(value), weakref.ref(value))
        except TypeError:
            return id(value)  # bool and the like live for ever
        self.__dict__[_WATCHED][id(value)] = value
        return id(value)

    CheckFunctionManager.__init__ = init  # type: ignore[method-assign]
    CheckFunctionManager.id_ref = id_ref  # type: ignore[assignment, method-assign]


def count_living_variants() -> None:
    """Dynamo compiles a function eight times and then runs it eagerly; variants that were dropped,
    or handed from one thread to another, do not count."""
    computed = convert_frame.compute_cache_size  # type: ignore[attr-defined]

    def living(frame: Any, entries: list[Any], total: int = 0) -> Any:
        alive = [e for e in entries if not isinstance(e.guard_manager, DeletedGuardManagerWrapper)]
        return computed(frame, alive, total - len(entries) + len(alive))

    convert_frame.compute_cache_size = living  # type: ignore[assignment, attr-defined]


def drop_variant(manager: Any) -> None:
    """Drop the variant that these guards belong to, its code and its programs."""
    if manager.cache_entry is not None and manager.extra_state is not None:
        manager.extra_state.invalidate(manager.cache_entry, DROPPED)
