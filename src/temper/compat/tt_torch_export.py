"""tt-xla's ways to get files out of a compile: what Temper has instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

import temper
from temper.compat.missing import note
from temper.compat.xla_options import translate
from temper.errors import UsageError


def codegen_py(
    model: torch.nn.Module, *args: Any, compiler_options: Mapping[str, Any] | None = None,
    export_path: str = "codegen_result", export_tensors: bool = True, **kwargs: Any,
) -> None:  # fmt: skip
    """A script of ttnn calls for each graph in ``export_path``, weights and inputs beside it."""
    _export(model, args, kwargs, compiler_options, {
        "backend": "codegen_py", "export_path": export_path, "export_tensors": export_tensors,
    })  # fmt: skip


def codegen_cpp(
    model: torch.nn.Module, *args: Any, compiler_options: Mapping[str, Any] | None = None,
    export_path: str = "codegen_result", export_tensors: bool = True, **kwargs: Any,
) -> None:  # fmt: skip
    """The program as text in ``export_path``; no C++."""
    note("codegen_cpp", f"codegen_cpp: Temper writes no C++; the compiled program is written to "
         f"{export_path}")  # fmt: skip
    _export(model, args, kwargs, compiler_options, {
        "export_path": export_path, "export_tensors": export_tensors,
    })  # fmt: skip


def _export(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any],
    compiler_options: Mapping[str, Any] | None, wanted: dict[str, Any],
) -> None:  # fmt: skip
    options = {**translate(compiler_options or {}), **wanted, "dry_run": True}
    with torch.no_grad():
        temper.compile(model.eval(), **options)(*args, **kwargs)


def no_artifacts(*_: Any, **__: Any) -> Any:
    """What stands for tools that take tt-mlir's files apart."""
    raise UsageError(
        "Temper has no MLIR, flatbuffers or system descriptors",
        try_="the option export_path, which writes the program of each graph as text",
    )
