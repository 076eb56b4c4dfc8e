"""Per-tensor weight formats: apply, remove and list overrides on a torch model.

An override swaps the class of the layer that owns the parameter for a subclass of the same name
whose attribute, while a graph is being captured, passes through
``torch.ops.tt.weight_dtype_override``. The parameter itself stays where it was: ``state_dict``
keys, ``load_state_dict``, optimisers, tied weights, ``deepcopy`` and pickling are as without
overrides (``torch.nn.utils.parametrize`` would rename ``weight`` to
``parametrizations.weight.original`` and refuse to be pickled).
"""

from __future__ import annotations

import os
import warnings
import weakref
from pathlib import Path

from torch import nn

from temper.errors import UsageError
from temper.weights.classes import overridden_formats, override, restore
from temper.weights.config import (
    Config,
    match_rules,
    nearest,
    read_config,
    unmatched_patterns,
    weight_slots,
    write_config,
)
from temper.weights.op import override_dtype
from temper.weights.report import WeightFormatEntry

# More skipped names than this do not help in one warning.
_NAMES_SHOWN = 4

# Models with overrides, so that a report on a captured graph can name the pattern that asked.
_overridden: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_skipped: weakref.WeakKeyDictionary[nn.Module, list[WeightFormatEntry]] = (
    weakref.WeakKeyDictionary()
)


def apply_weight_dtype_overrides(model: nn.Module, config: Config) -> list[tuple[str, str]]:
    """Ask for weight formats; returns the (parameter, dtype) pairs that this call set.

    ``config`` maps parameter names or globs to ``bf16``, ``bfp_bf8`` or ``bfp_bf4``; or is a
    JSON file of such a mapping; or one dtype for every ``*.weight``. The key ``"default"`` stands
    for the ``*.weight`` parameters that nothing else matches. Of several globs the later wins. A
    parameter that an earlier call set keeps its format.
    """
    rules = read_config(config)
    root = _unwrapped(model)
    slots = weight_slots(root)
    names = [name for slot in slots for name in slot.names]
    for pattern in unmatched_patterns(names, rules):
        warnings.warn(
            f"weight override {pattern!r} matches no parameter{nearest(pattern, names)}",
            stacklevel=2,
        )
    applied: list[tuple[str, str]] = []
    kept: list[WeightFormatEntry] = []
    for match in match_rules(slots, rules):
        slot = match.slot
        before = overridden_formats(slot.module).get(slot.attribute)
        if before is not None:
            reason = f"already {before.dtype} by {before.origin!r}: the first call wins"
            kept.append(
                WeightFormatEntry(slot.name, match.dtype, match.pattern, before.dtype, reason)
            )
            continue
        override(slot.module, slot.attribute, match.dtype, match.pattern)
        applied.append((slot.name, match.dtype))
    if applied:
        _overridden.add(root)
    if kept:
        _skipped.setdefault(root, []).extend(kept)
        shown = ", ".join(entry.parameter for entry in kept[:_NAMES_SHOWN])
        more = f" and {len(kept) - _NAMES_SHOWN} more" if len(kept) > _NAMES_SHOWN else ""
        warnings.warn(
            f"weight overrides of {shown}{more} skipped: an earlier call set them "
            "(remove_weight_dtype_overrides(model) clears all)",
            stacklevel=2,
        )
    return applied


def remove_weight_dtype_overrides(model: nn.Module) -> list[str]:
    """Undo every override on the model; returns the parameters that had one."""
    root = _unwrapped(model)
    removed = [
        slot.name
        for slot in weight_slots(root)
        if slot.attribute in overridden_formats(slot.module)
    ]
    for module in root.modules():
        restore(module)
    _skipped.pop(root, None)
    _overridden.discard(root)
    return removed


def weight_override_entries(model: nn.Module) -> list[WeightFormatEntry]:
    """Every override on the model, then every request that an earlier call kept from applying."""
    root = _unwrapped(model)
    entries = []
    for slot in weight_slots(root):
        setting = overridden_formats(slot.module).get(slot.attribute)
        if setting is not None:
            entries.append(WeightFormatEntry(slot.name, setting.dtype, setting.origin))
    return entries + _skipped.get(root, [])


def override_origins() -> dict[tuple[str | int, str], str]:
    """(name or id of a parameter, dtype) to the pattern that asked, over all living models."""
    found: dict[tuple[str | int, str], str] = {}
    for root in list(_overridden):
        for slot in weight_slots(root):
            setting = overridden_formats(slot.module).get(slot.attribute)
            if setting is not None:
                keys: list[str | int] = [*slot.names, id(slot.parameter)]
                for key in keys:
                    found.setdefault((key, setting.dtype), setting.origin)
    return found


def dump_weight_names(
    model: nn.Module,
    path: str | os.PathLike[str] | None = None,
    default_dtype: str = "bfp_bf8",
) -> dict[str, str]:
    """Name to dtype for every module with a ``weight`` parameter, as an override file has it."""
    dtype = override_dtype(default_dtype)
    names = {
        slot.name: dtype for slot in weight_slots(_unwrapped(model)) if slot.attribute == "weight"
    }
    if path is not None:
        write_config(names, Path(path))
    return names


def _unwrapped(model: nn.Module) -> nn.Module:
    inner = getattr(model, "_orig_mod", model)
    if not isinstance(inner, nn.Module):
        raise UsageError(f"weight overrides need a torch.nn.Module, not {type(model).__name__}")
    return inner
