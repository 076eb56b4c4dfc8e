"""Threads under Dynamo: torch's flags of a trace are one for all threads, and each thread that
misses a variant converts the function for itself. Both are told apart here."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from torch._C._dynamo.eval_frame import (
    _get_cache_entries_for_region,
    get_eval_frame_isolate_recompiles_id,
)
from torch._dynamo import eval_frame
from torch._dynamo.convert_frame import ConvertFrame
from torch._dynamo.eval_frame import innermost_backend
from torch._dynamo.guards import DeletedGuardManagerWrapper
from torch._dynamo.types import ConvertFrameReturn, GuardedCode, wrap_guarded_code
from torch.fx import _symbolic_trace
from torch.fx import traceback as fx_traceback

from temper.capture.dynamo_memory import drop_variant

# Threads that are in an export of ours.
_exporting: set[int] = set()


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """While this thread exports a graph, other threads run theirs as if nobody did."""
    thread = threading.get_ident()
    if thread in _exporting:  # an export within an export
        yield
        return
    _exporting.add(thread)
    try:
        yield
    finally:
        _exporting.discard(thread)


def _by_another_thread() -> bool:
    return bool(_exporting) and threading.get_ident() not in _exporting


def tell_threads_apart() -> None:
    """Let compiled functions run, and be compiled once, while another thread compiles."""
    _run_beside_exports()
    _convert_once()


def _run_beside_exports() -> None:
    """A compiled function that runs while another thread exports takes itself for a part of that
    export: it is refused, or writes into torch's one dictionary of annotations (KeyError)."""
    tracing = _symbolic_trace.is_fx_symbolic_tracing

    def is_fx_symbolic_tracing() -> bool:
        return tracing() and not _by_another_thread()

    def annotate(annotations: dict[str, Any]) -> contextlib.AbstractContextManager[None]:
        if _by_another_thread():
            return contextlib.nullcontext()
        return fx_traceback.annotate(annotations)

    _symbolic_trace.is_fx_symbolic_tracing = is_fx_symbolic_tracing
    # Only in eval_frame: Dynamo knows the function itself by its identity.
    eval_frame.fx_traceback = SimpleNamespace(annotate=annotate)  # type: ignore[assignment, attr-defined]


def _convert_once() -> None:
    """Threads that miss the same variant wait for one lock; all but the first then find it made.
    Without, each makes one, and from the ninth on torch.compile runs the function eagerly."""
    convert = ConvertFrame.__call__

    @functools.wraps(convert)
    def call(
        self: ConvertFrame, frame: Any, cache_entry: Any, hooks: Any, state: Any, skip: int = 0
    ) -> ConvertFrameReturn:
        _wait_for_entry()
        made = _made_meanwhile(frame, innermost_backend(self))
        if made is not None:
            result = wrap_guarded_code(made)
        else:
            result = convert(self, frame, cache_entry, hooks, state, skip=skip + 1)
        if result.guarded_code is not None:
            _latest[:] = [weakref.ref(result.guarded_code.guard_manager)]
        return result

    ConvertFrame.__call__ = call  # type: ignore[assignment, method-assign]


# The guards that were handed over last: torch enters them after it has left its lock.
_latest: list[weakref.ref[Any]] = []
_ENTERED_S = 2.0


def _wait_for_entry() -> None:
    """Until what another thread has just made can be found."""
    guards = _latest.pop()() if _latest else None
    until = time.monotonic() + _ENTERED_S
    while guards is not None and guards.cache_entry is None and time.monotonic() < until:
        time.sleep(0.0005)


def _made_meanwhile(frame: Any, backend: Any) -> GuardedCode | None:
    """The variant that holds for this call by now: its entry is taken out and handed over anew."""
    region = get_eval_frame_isolate_recompiles_id()
    for entry in _get_cache_entries_for_region(frame.f_code, region):
        guards: Any = entry.guard_manager
        if isinstance(guards, DeletedGuardManagerWrapper) or entry.backend != backend:
            continue
        if guards.check(frame.f_locals):
            made = GuardedCode(entry.code, guards, entry.compile_id)
            drop_variant(guards)
            return made
    return None
