"""tt-xla's ways to get files out of a compile: what Temper has instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

import temper
from temper.compat.missing import note
from temper.compat.xla_options import translate
from temper.errors import UsageError


def _exporter(name: str) -> Callable[..., None]:
    def export(
        model: torch.nn.Module, *args: Any, compiler_options: Mapping[str, Any] | None = None,
        export_path: str = "codegen_result", export_tensors: bool = True, **kwargs: Any,
    ) -> None:  # fmt: skip
        """The program as text in ``export_path``; no code that ttnn could run."""

        note(name, f"{name}: Temper generates no code; the compiled program is written to "
             f"{export_path}")  # fmt: skip
        options = {
            **translate(compiler_options or {}), "export_path": export_path,
            "export_tensors": export_tensors, "dry_run": True,
        }  # fmt: skip
        with torch.no_grad():
            temper.compile(model.eval(), **options)(*args, **kwargs)

    return export


codegen_py = _exporter("codegen_py")
codegen_cpp = _exporter("codegen_cpp")


def no_artifacts(*_: Any, **__: Any) -> Any:
    """What stands for tools that take tt-mlir's files apart."""
    raise UsageError(
        "Temper has no MLIR, flatbuffers or system descriptors",
        try_="the option export_path, which writes the program of each graph as text",
    )
