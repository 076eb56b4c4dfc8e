"""Weight formats: which matmul and linear weights change, which do not, and why."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from temper.formats.names import canonical_format
from temper.graph.captured import Captured
from temper.graph.node import is_node
from temper.options import Options
from temper.weights.config import (
    deciding_patterns,
    nearest,
    read_config,
    unmatched_patterns,
)
from temper.weights.op import OVERRIDE_NAMES
from temper.weights.overrides import override_origins
from temper.weights.report import WeightFormatEntry

aten = torch.ops.aten

# Operand of each op that is the weight when it comes from the model.
_WEIGHT_OPERAND = {
    aten.linear.default: 1, aten.mm.default: 1, aten.matmul.default: 1, aten.bmm.default: 1,
    aten.addmm.default: 2,
}  # fmt: skip
_CONVOLUTIONS = frozenset({
    aten.conv1d.default, aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding,
    aten.conv_transpose2d.input,
})  # fmt: skip
_LAYOUT_ONLY = frozenset({
    aten.t.default, aten.transpose.int, aten.permute.default, aten.view.default,
    aten.reshape.default, aten.clone.default, aten.unsqueeze.default, aten.squeeze.dim,
    aten.expand.default, aten._to_copy.default, aten.to.dtype,
})  # fmt: skip
_OVERRIDE = torch.ops.tt.weight_dtype_override.default


def assign_weight_formats(captured: Captured, options: Options) -> int:
    """Mark each matmul whose weight changes; leave the report on the captured graph."""
    paths = {a.node: a.path for a in captured.arguments if a.role == "weight"}
    requested, origins = _requests(captured, options)
    asked = override_origins()
    entries: dict[str, WeightFormatEntry] = {}
    hits = 0
    for node in captured.graph.nodes:
        operand = _WEIGHT_OPERAND.get(node.target)
        if operand is None or not is_node(node.args[operand]):
            continue
        path, override = _trace(node.args[operand], paths)
        if path is None:
            continue
        fmt, origin = requested.get(path, ""), origins.get(path, "")
        if override is not None:
            fmt = canonical_format(str(override.args[1]))
            origin = _origin(asked, captured, path, fmt)
        if not fmt:
            continue
        dtype = captured.weights[path].dtype
        effective, reason = fmt, ""
        if fmt == "bfloat16":
            reason = "kept at bfloat16"
        elif not dtype.is_floating_point:
            effective, reason = str(dtype), "not a floating-point weight"
        else:
            if dtype is torch.float32 and options["activation_dtype"] in ("auto", "float32"):
                reason = "the model is float32: cast it with model.to(torch.bfloat16) first"
            node.meta["weight_format"] = {"format": fmt, "parameter": path}
            hits += 1
        entries[path] = WeightFormatEntry(path, _short(fmt), origin, _short(effective), reason)
    hits += _convolutions(captured, options, paths, entries)
    _explain_the_rest(captured, requested, origins, entries)
    captured.weight_report = list(entries.values())
    if any("float32" in e.reason for e in entries.values()):
        warnings.warn(
            "block-float weights were asked for a float32 model; cast it with "
            "model.to(torch.bfloat16) before compiling",
            stacklevel=2,
        )
    return hits


def _convolutions(
    captured: Captured,
    options: Options,
    paths: Mapping[str, str],
    entries: dict[str, WeightFormatEntry],
) -> int:
    """Mark each convolution whose weight comes from the model, batch norm folded in or not."""
    fmt = options["conv_weight_dtype"]
    hits = 0
    for node in captured.graph.nodes if fmt else ():
        if node.target not in _CONVOLUTIONS:
            continue
        source = node.args[1]
        while is_node(source) and source.op != "placeholder" and source.args:
            source = source.args[0]
        path = paths.get(source.name) if is_node(source) else None
        if path is None or not captured.weights[path].dtype.is_floating_point:
            continue
        node.meta["weight_format"] = {"format": fmt, "parameter": path}
        entries[path] = WeightFormatEntry(path, _short(fmt), "conv_weight_dtype", _short(fmt), "")
        hits += 1
    return hits


def _requests(captured: Captured, options: Options) -> tuple[dict[str, str], dict[str, str]]:
    """Format and origin by parameter: overrides beat the global option."""
    requested: dict[str, str] = {}
    origins: dict[str, str] = {}
    everywhere = options["experimental_weight_dtype"]
    if everywhere:
        for argument in captured.arguments:
            if argument.role == "weight":
                requested[clean(argument.path)] = everywhere
                origins[clean(argument.path)] = "experimental_weight_dtype"
    overrides = options["weight_dtype_overrides"]
    if overrides:
        rules = read_config(overrides)
        ranks = {
            clean(a.path): captured.weights[a.path].dim()
            for a in captured.arguments
            if a.role == "weight"
        }
        for pattern in unmatched_patterns(list(ranks), rules):
            hint = nearest(pattern, list(ranks))
            warnings.warn(f"weight override {pattern!r} matches no weight{hint}", stacklevel=2)
        decided = deciding_patterns([((name,), rank) for name, rank in ranks.items()], rules)
        for name, deciding in zip(ranks, decided, strict=True):
            if deciding is not None:
                requested[name], origins[name] = canonical_format(rules[deciding]), deciding
    by_path = {a.path: clean(a.path) for a in captured.arguments if a.role == "weight"}
    return (
        {path: requested[name] for path, name in by_path.items() if name in requested},
        {path: origins[name] for path, name in by_path.items() if name in origins},
    )


def clean(path: str) -> str:
    """The parameter's own name, without torch's parametrization detour."""
    return path.replace("parametrizations.", "").removesuffix(".original")


def _trace(node: Any, paths: Mapping[str, str]) -> tuple[str | None, fx.Node | None]:
    """The parameter behind layout-only ops, and an override op on the way."""
    override = None
    while is_node(node):
        if node.op == "placeholder":
            return paths.get(node.name), override
        if node.target is _OVERRIDE:
            override = node
        elif node.target not in _LAYOUT_ONLY:
            return None, None
        node = node.args[0]
    return None, None


def _explain_the_rest(
    captured: Captured,
    requested: Mapping[str, str],
    origins: Mapping[str, str],
    entries: dict[str, WeightFormatEntry],
) -> None:
    """Requests that reached no matmul: explicit ones are reported with the reason."""
    overridden = {}
    asked = override_origins()
    paths = {a.node: a.path for a in captured.arguments if a.role == "weight"}
    for node in captured.graph.nodes:
        if node.target is _OVERRIDE:
            path, _ = _trace(node, paths)
            if path is not None:
                overridden[path] = canonical_format(str(node.args[1]))
    explicit = {p: f for p, f in requested.items() if origins.get(p) != "experimental_weight_dtype"}
    for path, fmt in {**explicit, **overridden}.items():
        if path in entries:
            continue
        dtype = str(captured.weights[path].dtype).removeprefix("torch.")
        origin = origins.get(path, "")
        if path in overridden:
            origin = _origin(asked, captured, path, fmt)
        entries[path] = WeightFormatEntry(path, _short(fmt), origin, dtype, _reason(captured, path))


def _origin(asked: Mapping[Any, str], captured: Captured, path: str, fmt: str) -> str:
    """The pattern of apply_weight_dtype_overrides behind an override op, if one is known."""
    dtype = _short(fmt)
    by_name = asked.get((clean(path), dtype))
    return by_name or asked.get((id(captured.weights[path]), dtype)) or "in the model"


def _reason(captured: Captured, path: str) -> str:
    users = set()
    for argument in captured.arguments:
        if argument.path == path:
            node = next(n for n in captured.graph.nodes if n.name == argument.node)
            overrides = [u for u in node.users if u.target is _OVERRIDE]
            beyond = [u for o in overrides for u in o.users]
            users = {_name(u.target) for u in (*node.users, *beyond) if u.target is not _OVERRIDE}
    used = ", ".join(sorted(users)) or "nothing"
    return f"no effect: used by {used}; only matmul and linear weights convert"


def _name(target: Any) -> str:
    return str(target).removeprefix("aten.").removesuffix(".default")


def _short(fmt: str) -> str:
    return OVERRIDE_NAMES.get(fmt, fmt)
