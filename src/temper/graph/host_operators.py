"""Operators and dtypes that host ops may name: a program out of a file reaches no others."""

from __future__ import annotations

from typing import Any

import torch

from temper.errors import CompileError

# What a value of a graph may be; host ops compute with each of them.
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "uint16",
        "uint32",
        "bool",
        "complex64",
        "complex128",
    )
}
_SPACES = {"aten", "tt"}


def trust(operator: Any) -> None:
    """Let host ops call the library that this operator of the user's own model comes from."""
    if isinstance(operator, torch._ops.OpOverload):
        _SPACES.add(operator.namespace)


def resolve(target: str) -> Any:
    """The operator that a target names, of torch.ops.aten, torch.ops.tt or a trusted library."""
    parts = target.removeprefix("torch.ops.").replace("::", ".").split(".")
    if parts[0] not in _SPACES:
        parts.insert(0, "aten")
    found: Any = getattr(torch.ops, parts[0])
    try:
        for part in parts[1:] if all(p.isidentifier() for p in parts) else [""]:
            found = getattr(found, part)
    except AttributeError:
        found = None
    if not isinstance(found, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        raise CompileError(f"{target!r} is not an operator of torch.ops.aten or torch.ops.tt")
    return found


def dtype_named(name: str) -> torch.dtype:
    """The dtype of this name; CompileError where there is none."""
    short = name.removeprefix("torch.")
    if short not in DTYPES:
        raise CompileError(f"unknown dtype {name!r}", allowed=sorted(DTYPES))
    return DTYPES[short]
