"""What fits: the largest batch or sequence by level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from temper import chips
from temper.chips import Chip
from temper.compiler.pipeline import compile_model
from temper.errors import OutOfMemoryError, TemperError, UsageError
from temper.frontdoor.loader import Loaded, find, load, takes_batch
from temper.program.memory_plan import plan


@dataclass(frozen=True)
class Fit:
    """The largest size that fits a level; ``stopped_by`` tells what stops the next one."""

    level: int
    dimension: str  # batch | sequence
    largest: int
    searched_to: int
    sram_bytes_per_core: int
    dram_bytes: int
    dram_capacity_bytes: int
    stopped_by: str
    estimate: int | None = None  # where DRAM would end by extrapolation, when not reached

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


def fit_model(
    source: str | Callable[..., Any],
    chip: str = "n150",
    *,
    levels: tuple[int, ...] = (0, 1, 2),
    limit: int = 512,
    sequence: bool = False,
    options: dict[str, Any] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Fit]:
    """Double until memory ends or the limit is reached, then halve the gap."""
    function = find(source) if isinstance(source, str) else source
    if not sequence and not takes_batch(function):
        raise UsageError("the model's callable takes no batch", try_=["def make(batch): ..."])
    return [
        _fit_level(function, chips.get(chip), level, limit, sequence, options or {}, progress)
        for level in levels
    ]


def _fit_level(
    function: Callable[..., Any],
    chip: Chip,
    level: int,
    limit: int,
    sequence: bool,
    options: dict[str, Any],
    progress: Callable[[str], None],
) -> Fit:
    word = "sequence" if sequence else "batch"
    base = load(function, None if sequence else 1)
    start = _sequence_length(base) if sequence else 1
    known: dict[int, tuple[int, int] | TemperError] = {}

    def attempt(size: int) -> tuple[int, int] | TemperError:
        if size not in known:
            progress(f"level {level}, {word} {size}")
            loaded = _resized(base, size) if sequence else load(function, size)
            try:
                compiled = compile_model(
                    loaded.model,
                    loaded.inputs,
                    loaded.kwargs,
                    {**options, "chip": chip.name, "optimization_level": level},
                )
            except OutOfMemoryError as error:
                known[size] = error
            except TemperError as error:
                if not sequence:
                    raise
                known[size] = error
            else:
                plans = [plan(p) for p in compiled.programs]
                known[size] = (
                    max(p.sram_high_water for p in plans),
                    max(p.dram_high_water for p in plans),
                )
        return known[size]

    good, size = 0, start
    bad: int | None = None
    while size <= limit:
        if isinstance(attempt(size), TemperError):
            bad = size
            break
        good, size = size, size * 2
    while bad is not None and bad - good > 1:
        middle = (good + bad) // 2
        if isinstance(attempt(middle), TemperError):
            bad = middle
        else:
            good = middle
    capacity = chip.dram_banks * chip.dram_bank_bytes
    held = known.get(good, (0, 0))
    assert isinstance(held, tuple)
    failure = known.get(bad) if bad is not None else None
    stopped = str(failure) if isinstance(failure, TemperError) else ""
    reach = None if stopped else _extrapolate(known, capacity)
    if not stopped:
        stopped = f"nothing up to {good}, where the search ends"
    return Fit(level, word, good, limit, held[0], held[1], capacity, stopped, reach)


def _extrapolate(known: dict[int, Any], capacity: int) -> int | None:
    """DRAM grows by a fixed amount a sample: where it would end."""
    sizes = sorted(size for size, held in known.items() if isinstance(held, tuple))
    if len(sizes) < 2:
        return None
    first, last = sizes[-2], sizes[-1]
    each = (known[last][1] - known[first][1]) / (last - first)
    return int(last + (capacity - known[last][1]) / each) if each > 0 else None


def _sequence_length(loaded: Loaded) -> int:
    for value in (*loaded.inputs, *loaded.kwargs.values()):
        if isinstance(value, torch.Tensor) and value.dim() == 2 and not value.is_floating_point():
            return int(value.shape[1])
    raise UsageError(
        "the model has no sequence length", needs="an integer input of shape (batch, sequence)"
    )


def _resized(loaded: Loaded, size: int) -> Loaded:
    """Every input with the sequence's length in its second dimension, repeated or cut."""
    old = _sequence_length(loaded)

    def change(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() < 2 or value.shape[1] != old:
            return value
        repeats = [1] * value.dim()
        repeats[1] = -(-size // old)
        return value.repeat(repeats).narrow(1, 0, size).contiguous()

    return Loaded(
        loaded.model,
        tuple(change(v) for v in loaded.inputs),
        {k: change(v) for k, v in loaded.kwargs.items()},
        loaded.batch,
    )
