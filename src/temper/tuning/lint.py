"""Lint of a measurement: what happens inside the timed region that should not."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from temper.tuning.statistics import two_modes

_RANDOM = (
    "rand", "randn", "randint", "randperm", "bernoulli", "normal", "uniform", "exponential",
    "multinomial", "native_dropout", "poisson", "cauchy", "geometric", "log_normal", "rrelu",
)  # fmt: skip
_FACTORIES = (
    "zeros", "ones", "empty", "full", "arange", "linspace", "eye", "zeros_like", "ones_like",
    "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty",
)  # fmt: skip
_IMPORTED = (".py", ".pyc", ".so", ".pth", "METADATA", "entry_points.txt")
# One timed call longer than this many medians was no steady call: it compiled something.
_COMPILED = 10.0


@dataclass(frozen=True)
class Smell:
    """Something wrong with a measurement; ``refuse`` findings forbid any claim from it."""

    kind: str  # random | allocation | printing | loading | mutation | unwarmed | bimodal | compile
    text: str
    refuse: bool = False
    line: int = 0

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass
class _Seen:
    ops: Counter[str] = field(default_factory=Counter)
    allocated_bytes: int = 0
    opened: list[str] = field(default_factory=list)
    printed: str = ""


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts random and allocating ops of an eager run."""

    def __init__(self, seen: _Seen) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.rstrip("_")
        result = func(*args, **(kwargs or {}))
        if name in _RANDOM or name in _FACTORIES:
            self.seen.ops[name] += 1
            if name in _FACTORIES and isinstance(result, torch.Tensor):
                self.seen.allocated_bytes += result.nbytes
        return result


_audited: list[_Seen] = []
_hooked = False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    # Audit hooks cannot be taken off again; without a watcher this one does nothing.
    if _audited and event == "open" and args and isinstance(args[0], (str, bytes)):
        name, flags = str(args[0]), args[2] if len(args) > 2 else 0
        # Files being written, and late imports of torch's own parts, are no data loading.
        if not flags & (os.O_CREAT | os.O_WRONLY) and not name.endswith(_IMPORTED):
            _audited[-1].opened.append(name)


@contextlib.contextmanager
def _watching() -> Iterator[_Seen]:
    global _hooked
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked = True
    seen = _Seen()
    written = io.StringIO()
    with contextlib.redirect_stdout(written), _Watch(seen), torch.no_grad():
        _audited.append(seen)
        try:
            yield seen
        finally:
            _audited.remove(seen)
    seen.printed = written.getvalue()


def probe(call: Callable[..., Any], inputs: Sequence[Any], kwargs: dict[str, Any]) -> list[Smell]:
    """Run the timed code eagerly, twice, and look at what it does."""
    tensors = [x for x in pytree.tree_leaves((inputs, kwargs)) if isinstance(x, torch.Tensor)]
    before = [t.clone() for t in tensors]
    # The first run may import and cache; only the second is looked at.
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        first = _copies(call(*inputs, **kwargs))
    changed = [i for i, (t, b) in enumerate(zip(tensors, before, strict=True)) if not _same(t, b)]
    with torch.no_grad():
        for tensor, value in zip(tensors, before, strict=True):
            if not tensor.is_inference():
                tensor.copy_(value)
    with _watching() as seen:
        second = _copies(call(*inputs, **kwargs))
    with torch.no_grad():
        for index in changed:
            if not tensors[index].is_inference():
                tensors[index].copy_(before[index])
    found = []
    drawn = {n: c for n, c in seen.ops.items() if n in _RANDOM}
    alike = len(first) == len(second) and all(map(_same, first, second))
    if drawn or not alike:
        names = ", ".join(f"{n} x{c}" for n, c in drawn.items()) or "no random op was seen"
        differ = "" if alike else "; two runs on the same inputs differ"
        found.append(Smell("random", f"random numbers inside the timed region: {names}{differ}"))
    made = {n: c for n, c in seen.ops.items() if n in _FACTORIES}
    if made and seen.allocated_bytes > 0:
        names = ", ".join(f"{n} x{c}" for n, c in made.items())
        found.append(
            Smell(
                "allocation",
                f"tensors made inside the timed region: {names}, {seen.allocated_bytes:,} B per "
                "call (the compiler folds constant ones away)",
            )
        )
    if seen.printed:
        shown = seen.printed.strip().splitlines()
        first_line = shown[0][:60] if shown else ""
        found.append(Smell("printing", f"prints inside the timed region: {first_line!r}"))
    if seen.opened:
        found.append(
            Smell("loading", f"reads files inside the timed region: {', '.join(seen.opened[:3])}")
        )
    if changed:
        found.append(
            Smell(
                "mutation",
                f"changes its input{'s' if len(changed) > 1 else ''} "
                f"{', '.join(map(str, changed))}: each call computes something else",
            )
        )
    return found


def judge_samples(trials: Sequence[Sequence[float]], warm: bool, compiled: int) -> list[Smell]:
    """What the samples themselves say: not warmed, compiling, two modes."""
    calls = [value for trial in trials for value in trial]
    ordered = sorted(calls)
    median = ordered[len(ordered) // 2]
    found = []
    if not warm:
        found.append(
            Smell("unwarmed", "the warm-up never became steady: no speed-up can be claimed", True)
        )
    if compiled:
        found.append(
            Smell("compile", f"{compiled} compilations inside the timed region", refuse=True)
        )
    slow = [c for c in calls if c > _COMPILED * median]
    if slow and sum(slow) > 0.3 * sum(calls):
        found.append(
            Smell(
                "compile",
                f"the mean is dominated by {len(slow)} of {len(calls)} calls (compilation or a "
                f"disturbance): use the median, {median / 1e6:.3f} ms",
                refuse=True,
            )
        )
    modes = two_modes(calls)
    if modes:
        found.append(
            Smell(
                "bimodal",
                f"two groups of calls around {modes[0] / 1e6:.3f} and {modes[1] / 1e6:.3f} ms: "
                "mean and deviation describe neither",
            )
        )
    return found


def _copies(outputs: Any) -> list[torch.Tensor]:
    return [t.clone() for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor)]


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or not a.is_floating_point():
        return torch.equal(a, b)
    return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
