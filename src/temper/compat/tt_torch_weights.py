"""tt-xla's weight overrides in the form its scripts inspect: torch parametrizations.

Temper's own (``temper.weights.overrides``) leave the parameter where it is. Scripts written for
tt-xla look at ``parametrize.is_parametrized`` and count what was removed, so theirs do as upstream.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from temper.weights.config import (
    Config,
    match_rules,
    nearest,
    read_config,
    unmatched_patterns,
    weight_slots,
    write_config,
)
from temper.weights.op import ensure_op_defined, override_dtype


class WeightDtypeParametrization(nn.Module):
    """Reads a weight through the format op, so that a captured graph carries the format."""

    def __init__(self, dtype_str: str) -> None:
        super().__init__()
        ensure_op_defined()
        self.dtype_str = override_dtype(dtype_str)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        read: torch.Tensor = torch.ops.tt.weight_dtype_override(weight, self.dtype_str)
        return read


def apply_weight_dtype_overrides(model: nn.Module, config: Config) -> list[tuple[str, str]]:
    """Register the formats that ``config`` asks for; returns (parameter, dtype) of each.

    A parameter that has a format keeps it: the first call wins.
    """
    rules = read_config(config)
    slots = weight_slots(model)
    names = [name for slot in slots for name in slot.names]
    for pattern in unmatched_patterns(names, rules):
        near = nearest(pattern, names)
        warnings.warn(f"weight override {pattern!r} matches no parameter{near}", stacklevel=2)
    applied = []
    for match in match_rules(slots, rules):
        module, attribute = match.slot.module, match.slot.attribute
        if _ours(module, attribute):
            continue
        parametrize.register_parametrization(
            module, attribute, WeightDtypeParametrization(match.dtype)
        )
        applied.append((match.slot.name, match.dtype))
    return applied


def remove_weight_dtype_overrides(model: nn.Module) -> int:
    """Take the formats off again, other parametrizations stay; returns how many there were."""
    count = 0
    for module in list(model.modules()):
        if not parametrize.is_parametrized(module):
            continue
        for attribute in list(module.parametrizations):  # type: ignore[arg-type]
            found = _ours(module, attribute)
            every: Any = module.parametrizations[attribute]  # type: ignore[index]
            if found and len(found) == len(every):
                parametrize.remove_parametrizations(module, attribute)
            else:
                for index in reversed(found):
                    del every[index]
            count += len(found)
    return count


def dump_weight_names(
    model: nn.Module,
    model_name: str | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    default_dtype: str = "bfp_bf8",
) -> dict[str, str]:
    """Every ``weight`` with the default format; with a folder also as a JSON file in it."""
    dtype = override_dtype(default_dtype)
    names = {slot.name: dtype for slot in weight_slots(model) if slot.attribute == "weight"}
    if output_dir is not None:
        stem = (model_name or type(model).__name__).rsplit("/", 1)[-1]
        write_config(names, Path(output_dir) / f"{stem}.json")
    return names


def _ours(module: nn.Module, attribute: str) -> list[int]:
    if not parametrize.is_parametrized(module, attribute):
        return []
    every = module.parametrizations[attribute]  # type: ignore[index]
    return [
        index for index, item in enumerate(every) if isinstance(item, WeightDtypeParametrization)
    ]
