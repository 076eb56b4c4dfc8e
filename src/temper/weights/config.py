"""The rules of a weight override file: read, check, write, and match to a model's parameters."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torch import nn

from temper.errors import BadFileError, UsageError
from temper.files import nearest_files, write_text
from temper.weights.op import override_dtype

Config = Mapping[str, str] | str | os.PathLike[str]

DEFAULT_KEY = "default"


@dataclass(frozen=True)
class WeightSlot:
    """A parameter where a layer holds it. Shared layers give one slot several names."""

    names: tuple[str, ...]
    module: nn.Module
    attribute: str

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def parameter(self) -> nn.Parameter:
        found = self.module._parameters[self.attribute]
        assert found is not None
        return found


@dataclass(frozen=True)
class RuleMatch:
    """What a configuration says about one parameter."""

    slot: WeightSlot
    pattern: str
    dtype: str


def read_config(config: Config) -> dict[str, str]:
    """Patterns to validated dtypes, from a mapping, a JSON file or a single dtype."""
    if isinstance(config, Mapping):
        return _validated(config, "")
    if isinstance(config, os.PathLike) or (isinstance(config, str) and config.endswith(".json")):
        path = Path(config)
        return _validated(_read_json(path), f"{path}: ")
    if isinstance(config, str):
        return {DEFAULT_KEY: override_dtype(config)}
    raise UsageError(
        f"weight overrides are a dict, a .json file or a dtype, not {type(config).__name__}"
    )


def write_config(rules: Mapping[str, str], path: Path) -> None:
    """An override file, complete or not there at all."""
    write_text(path, json.dumps(rules, indent=2) + "\n")


def weight_slots(model: nn.Module) -> list[WeightSlot]:
    """Every parameter of the model where a layer holds it, tied ones once for each layer."""
    slots: dict[tuple[int, str], tuple[list[str], nn.Module, str]] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for attribute, parameter in module._parameters.items():
            if parameter is None:
                continue
            name = f"{prefix}.{attribute}" if prefix else attribute
            # A compiled submodule hides behind a wrapper that is no part of the user's names.
            name = name.replace("_orig_mod.", "")
            slots.setdefault((id(module), attribute), ([], module, attribute))[0].append(name)
    return [WeightSlot(tuple(names), module, attr) for names, module, attr in slots.values()]


def match_rules(slots: list[WeightSlot], rules: Mapping[str, str]) -> list[RuleMatch]:
    """For each parameter that the rules name, the last rule that does."""
    patterns = deciding_patterns([(slot.names, slot.parameter.dim()) for slot in slots], rules)
    pairs = zip(slots, patterns, strict=True)
    return [
        RuleMatch(slot, pattern, rules[pattern]) for slot, pattern in pairs if pattern is not None
    ]


def deciding_patterns(
    parameters: Sequence[tuple[Sequence[str], int]], rules: Mapping[str, str]
) -> list[str | None]:
    """For each parameter, given by its names and its rank, the last pattern that names it.

    The default is for weights that no pattern names. A glob over matrices leaves the vectors beside
    them alone, which no format changes: ``fc1.*`` is about the weight.
    """
    named = [p for p in rules if p != DEFAULT_KEY]
    over_matrices = {
        p for p in named for names, rank in parameters
        if rank > 1 and p not in names and any_matches(names, p)
    }  # fmt: skip
    found: list[str | None] = []
    for names, rank in parameters:
        hits = [p for p in named if any_matches(names, p) and (rank > 1 or p not in over_matrices)]
        if not hits and DEFAULT_KEY in rules and names[0].endswith(".weight"):
            hits = [DEFAULT_KEY]
        found.append(hits[-1] if hits else None)
    return found


def any_matches(names: Iterable[str], pattern: str) -> bool:
    """Whether a pattern matches one of these names."""
    return any(fnmatchcase(name, pattern) for name in names)


def slot_matches(slot: WeightSlot, pattern: str) -> bool:
    """Whether a pattern matches a weight by any of its names."""
    return any_matches(slot.names, pattern)


def unmatched_patterns(names: Sequence[str], rules: Mapping[str, str]) -> list[str]:
    """The patterns that name no parameter at all."""
    return [p for p in rules if p != DEFAULT_KEY and not any_matches(names, p)]


def nearest(pattern: str, names: Sequence[str]) -> str:
    """The end of a sentence about a pattern that matches nothing: "; the nearest is ...", or ""."""
    near = nearest_names(pattern, names)
    return f"; the nearest is {' or '.join(near)}" if near else ""


def nearest_names(pattern: str, names: Sequence[str]) -> list[str]:
    """Up to two parameter names that look like the pattern."""
    found = difflib.get_close_matches(pattern, names, n=2, cutoff=0.5)
    if not found:
        # A glob is mostly about its end: compare with names of the same number of parts.
        parts = pattern.count(".") + 1
        tails = {".".join(name.split(".")[-parts:]): name for name in names}
        near = difflib.get_close_matches(pattern.lstrip("*."), tails, n=2, cutoff=0.4)
        found = [tails[tail] for tail in near]
    return found


def _validated(rules: Mapping[Any, Any], where: str) -> dict[str, str]:
    checked = {}
    for pattern, dtype in rules.items():
        if not isinstance(pattern, str):
            raise UsageError(f"{where}weight override key {pattern!r} is no parameter name")
        try:
            checked[pattern] = override_dtype(dtype)
        except UsageError as error:
            raise UsageError(
                f"{where}{pattern!r}: {error.what}",
                allowed=error.details.get("allowed"),
                try_=error.details.get("try"),
            ) from None
    return checked


_FORM = (
    'a JSON object of patterns and formats, such as {"default": "bfp_bf8", "*.lm_head.weight": '
    '"bf16"}'
)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_no_twins)
    except FileNotFoundError:
        raise UsageError(f"no weight override file {path}", try_=nearest_files(path)) from None
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadFileError(
            f"{path} is no weight override file", found=str(error), needs=_FORM
        ) from None
    if not isinstance(found, dict):
        raise BadFileError(
            f"{path} is no weight override file",
            found=f"a JSON {type(found).__name__}",
            needs=_FORM,
        )
    return found


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"the key {key!r} stands twice")
        seen[key] = value
    return seen
