"""What an override file does to a model: hits of each pattern, and what each weight becomes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from temper.capture.capture import capture
from temper.errors import CompileError
from temper.formats.sizes import tile_bytes
from temper.options import resolve
from temper.passes.weight_formats import assign_weight_formats
from temper.weights.config import (
    DEFAULT_KEY,
    RuleMatch,
    WeightSlot,
    match_rules,
    nearest_names,
    slot_matches,
    unmatched_patterns,
    weight_slots,
)
from temper.weights.overrides import apply_weight_dtype_overrides
from temper.weights.report import WeightFormatEntry, outlook


@dataclass(frozen=True)
class PatternLine:
    """One rule of the file: what it matches, and of that what a later rule takes away."""

    pattern: str
    dtype: str
    matches: int
    decides: int
    takes_effect: int
    nearest: tuple[str, ...] = ()


@dataclass(frozen=True)
class WeightLine:
    """One parameter that a rule decides."""

    parameter: str
    shape: tuple[int, ...]
    pattern: str
    requested: str
    effect: bool
    reason: str
    size_bytes: int
    new_size_bytes: int


@dataclass(frozen=True)
class OverrideExplanation:
    """What each pattern of an override file did, and what each weight got."""

    patterns: tuple[PatternLine, ...]
    weights: tuple[WeightLine, ...]
    # "captured graph", or why only the kinds of the layers were looked at
    basis: str

    @property
    def unmatched(self) -> list[PatternLine]:
        return [line for line in self.patterns if not line.matches and line.pattern != DEFAULT_KEY]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def explain(
    model: torch.nn.Module,
    rules: Mapping[str, str],
    inputs: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> OverrideExplanation:
    """Apply the rules to the model and say what comes of each; the model keeps them."""
    slots = weight_slots(model)
    matches = match_rules(slots, rules)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        apply_weight_dtype_overrides(model, rules)
        found, basis = _outcomes(model, inputs, kwargs)
    lines = [_weight_line(match, found) for match in matches]
    names = [name for slot in slots for name in slot.names]
    missing = set(unmatched_patterns(names, rules))
    patterns = []
    for pattern, dtype in rules.items():
        decided = [line for line in lines if line.pattern == pattern]
        hits = len(decided)
        if pattern != DEFAULT_KEY:
            hits = sum(slot_matches(slot, pattern) for slot in slots)
        near = tuple(nearest_names(pattern, names)) if pattern in missing else ()
        effective = sum(line.effect for line in decided)
        patterns.append(PatternLine(pattern, dtype, hits, len(decided), effective, near))
    return OverrideExplanation(tuple(patterns), tuple(lines), basis)


def _outcomes(
    model: torch.nn.Module, inputs: tuple[Any, ...] | None, kwargs: Mapping[str, Any] | None
) -> tuple[dict[int, WeightFormatEntry] | None, str]:
    """What the compiler's own pass says, by the identity of the parameter."""
    if inputs is None:
        return None, "kinds of the layers (no inputs given)"
    try:
        captured = capture(model, inputs, kwargs)
    except CompileError as error:
        return None, f"kinds of the layers (the model does not capture whole: {error.what})"
    assign_weight_formats(captured, resolve({}))
    by_name = {name: slot for slot in weight_slots(model) for name in slot.names}
    found = {}
    for entry in captured.weight_report:
        slot = by_name.get(entry.parameter)
        if slot is not None:
            found[id(slot.parameter)] = entry
    return found, "captured graph"


def _weight_line(match: RuleMatch, found: Mapping[int, WeightFormatEntry] | None) -> WeightLine:
    slot = match.slot
    seen = outlook(slot.module, slot.parameter)
    effect, reason = seen.converts is not False, seen.reason
    if found is not None and seen.converts is not False:
        # A layer of a kind that never converts may share its weight with one that does (tied
        # embeddings), so the graph is asked only about the others.
        entry = found.get(id(slot.parameter))
        if entry is None:
            effect, reason = False, "no op of the captured graph uses it"
        else:
            effect, reason = entry.effective == match.dtype, entry.reason
    size = _tiled_bytes(slot, "bf16")
    new_size = _tiled_bytes(slot, match.dtype) if effect else size
    shape = tuple(slot.parameter.shape)
    return WeightLine(slot.name, shape, match.pattern, match.dtype, effect, reason, size, new_size)


def _tiled_bytes(slot: WeightSlot, dtype: str) -> int:
    shape = tuple(slot.parameter.shape) or (1,)
    rows = shape[-2] if len(shape) > 1 else 1
    tiles = math.ceil(rows / 32) * math.ceil(shape[-1] / 32) * math.prod(shape[:-2])
    return tiles * tile_bytes(dtype)
